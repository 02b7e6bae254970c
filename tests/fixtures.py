"""Fixtures of all tests: small finished runs, valid and invalid files, commands in two processes."""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

import pictures
from m3g.cli import main

COLOURS = {"red": (255, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
QUICK = ["--loop.epochs", "1", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with two views, `a.npy` and `b.npy`, and the small run that was trained on them."""
    folder = tmp_path_factory.mktemp("finished")
    views = []
    for seed, name in enumerate(("a", "b")):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal((60, 5)))
        views.append(str(folder / f"{name}.npy"))
    options = ["--data_options.batch_size", "20", "--out", str(folder / "run")]
    assert main(["train", *QUICK, "--views", *views, *options]) == 0
    return folder


@pytest.fixture
def copy(finished, tmp_path, monkeypatch):
    """A copy of the run, `run` in the working directory."""
    shutil.copytree(finished / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


@pytest.fixture
def rendered(monkeypatch):
    """Render the plots of runs, which are blank in other tests."""
    monkeypatch.setattr(pictures, "rendering", True)


@pytest.fixture
def error_line(capsys):
    """Run a command that must fail with exit code 2 and one line on standard error; return the line."""

    def run(*words):
        code = main([str(word) for word in words])
        output = capsys.readouterr()
        assert code == 2, output
        (line,) = output.err.strip().splitlines()
        assert "Traceback" not in output.out
        return line

    return run


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """An empty working directory; a folder next to it has two valid and several invalid files."""
    files = tmp_path / "files"
    files.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(files / f"{name}.npy", rng.standard_normal((60, 5)))
    np.save(files / "short.npy", rng.standard_normal((40, 5)))
    np.save(files / "labels.npy", np.arange(30))
    hollow = rng.standard_normal((60, 5))
    hollow[:, 2] = np.nan
    np.save(files / "hollow.npy", hollow)
    np.save(files / "pickle.npy", np.array([{"a": 1}] * 60, dtype=object), allow_pickle=True)
    (files / "words.csv").write_text("x,name\n" + "1.0,one\n" * 60)
    (files / "bad.yaml").write_text("loop: {epochs: [")
    (files / "unknown.yaml").write_text("loss: m3g\nlearning_rte: 3\n")
    (files / "group.yaml").write_text("loop: 3\n")
    (files / "null.yaml").write_text("seed: null\n")
    (files / "empty.yaml").write_text("")
    (files / "bytes.yaml").write_bytes(b"\xff\xfe")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return files


def error_of(arguments, capsys):
    """Run a command that must fail with exit code 2 and one line on standard error; return the line."""
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert code == 2, output
    lines = output.err.strip().splitlines()
    assert len(lines) == 1, output.err
    assert lines[0].startswith("m3g: error: ")
    assert "Traceback" not in output.err + output.out
    return lines[0]


def table(path):
    """Return the rows of a .csv file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def torchrun(tmp_path, tmp_path_factory):
    """Run the command in two processes of torchrun; return exit code and output."""
    import forked

    def run(*words, folders=(tmp_path, tmp_path), **options):
        return forked.torchrun(words, folders, tmp_path_factory.mktemp("logs"), **options)

    return run


@pytest.fixture
def command(tmp_path, tmp_path_factory):
    """Run the command, which starts two processes; return exit code and output."""
    import forked

    return lambda *words: forked.run([*words, "--loop.devices", "2"], tmp_path, tmp_path_factory.mktemp("logs"))


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """A machine without a connection: the address of the hub does not respond, and the cache is empty."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    naps = []  # the client would retry for half a minute
    monkeypatch.setattr("time.sleep", naps.append)
    yield
    assert sum(naps) < 1


@pytest.fixture
def four_views(tmp_path, monkeypatch):
    """Write four small views of 160 objects and return the arguments that select them."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    objects = random.standard_normal((160, 6))
    for name in "abcd":
        np.save(f"{name}.npy", objects @ random.standard_normal((6, 8)) + 0.3 * random.standard_normal((160, 8)))
    return ["--views", *(f"{name}.npy" for name in "abcd")]


@pytest.fixture
def two_views(tmp_path, monkeypatch):
    """Write two small views of 80 objects and return the arguments that train on them for two epochs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((80, 4))
    for name in ("a", "b"):
        np.save(f"{name}.npy", objects @ rng.standard_normal((4, 6)))
    words = [
        "--loop.epochs",
        "2",
        "--loop.evaluate_every",
        "1",
        "--heads.hidden",
        "8",
        "--data_options.batch_size",
        "20",
    ]
    return ["--views", "a.npy", "b.npy", *words]


@pytest.fixture(scope="session")
def coloured(tmp_path_factory):
    """Images of one colour with a name and a weight, and a run on them that distinguishes the colours."""
    folder = tmp_path_factory.mktemp("coloured")
    random = np.random.default_rng(0)
    lines = []
    for i in range(120):
        name = list(COLOURS)[i % 4]
        pixels = np.clip(np.array(COLOURS[name]) + random.normal(0, 40, (12, 12, 3)), 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(
            [f"k{i * i}", f"{i}.png", f"{name} & <b>thing</b> {random.integers(90)}", 10 * (i % 4) + random.random()]
        )
    with open(folder / "things.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "photo", "name", "weight"], *lines])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--loop.epochs", "15", "--loop.evaluate_every", "0", "--view.name.encoder", "text", "--out", "run"]
        assert main(["train", "--table", "things.csv", "--view.name.length", "24", *words]) == 0
    return folder
