"""User errors: one line, exit code 2, no traceback, no partial files."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from m3g.cli import main

QUICK = ["--loop.epochs", "1", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]


@pytest.fixture
def here(tmp_path, monkeypatch):
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


def fails(arguments, capsys):
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert code == 2, output
    lines = output.err.strip().splitlines()
    assert len(lines) == 1, output.err
    assert lines[0].startswith("m3g: error: ")
    assert "Traceback" not in output.err + output.out
    return lines[0]


CASES = [
    (["--views", "a.npy", "missing.npy"], "missing.npy"),
    (["--views", "a.npy", "short.npy"], r"a 60, short 40"),
    (["--views", "a.npy", "b.npy", "--labels", "labels.npy"], "labels must have 60 entries"),
    (["--views", "a.npy", "hollow.npy"], "only NaN in column 2: remove it"),
    (["--views", "a.npy", "pickle.npy"], "pickle.npy"),
    (["--views", "a.npy"], "k >= 2 files"),
    (["--views", "a.npy", "b.npy", "--data_options.batch_size", "50"], "batch_size must be at most 42, the number"),
    (["--views", "a.npy", "b.npy", "--data_options.batch_size", "1"], "batch_size must be at least 2, because rows"),
    (["--labels", "labels.npy"], "--labels requires --views"),
    (["--loss", "nonsense"], "loss must be one of"),
    (["--loss_options.nonsense", "3"], "nonsense"),
    (["--loss_options.epsilon", "-1"], "epsilon must be a positive"),
    (["--encoder", "nonsense"], "encoder must be one of"),
    (["--encoder", "os.system"], "trust=True"),
    (["--encoder_options.nonsense", "3"], "nonsense"),
    (["--data", "nonsense"], "data must be one of"),
    (["--data_options.nonsense", "3"], "data_options of multiple-features must be among .*got nonsense"),
    (["--views_per_step", "1"], "views_per_step must be"),
    (["--teacher.student_views", "2"], "teacher.student_views must be"),
    (["--loss", "mmcr", "--teacher.enabled", "true"], "student–teacher form"),
    (["--loss", "byol-ave"], "works without a teacher"),
    (["--loop.epochs", "0"], "loop.epochs must be"),
    (["--loop.epochs", "many"], "loop.epochs must be a whole number or null, got 'many'"),
    (["--heads.hidden", "wide"], "heads.hidden must be a whole number or null, got 'wide'"),
    (["--loop.epoch", "3"], r"loop must have only the names accelerator, .*, got epoch: did you mean epochs\?$"),
    (["--loop.precision", "3-bit"], "precision"),
    (["--loop.accelerator", "gpu"], "got accelerator gpu"),
    (["--loop.strategy", "nonsense"], "strategy nonsense"),
    (["--loop.strategy", "fsdp"], "loop.strategy fsdp requires several processes"),
    (["--loop.strategy", "fsdp", "--loss", "symile"], "loss must have no parameters with loop.strategy fsdp"),
    (["--loop.chunk_size", "0"], "loop.chunk_size must be a whole number of at least 1, got 0"),
    (["--loop.clip", "-1"], "loop.clip must be a positive"),
    (["--seed", "-1"], "seed must be"),
    (["--teacher.momentum", "2"], "teacher.momentum must be"),
    (["--heads.embedding_size", "0"], "heads.embedding_size must be"),
    (["--data", "images"], "must have root, got none: use --data_options.root VALUE"),
    (["--encoder", "transformers"], "inputs of the view's shape"),
    (["--views", "a.npy", "words.csv"], "only numeric columns, but column 'name'"),
    (["--out", "/proc/run"], "--out must be a folder that can be created"),
    (["--optim.learning_rate", "-1"], "optim.learning_rate must be"),
    (["--nonsense", "3"], r"must be those that m3g train --help lists, got --nonsense\.$"),
    (["--lop.epochs", "3"], r"got --lop.epochs: did you mean --loop.epochs\?$"),
    (["--loss", "infonce-pw"], r"got 'infonce-pw': did you mean infonce-pwe\?$"),
    (["--loss_options.epsilom", "0.1"], r"got epsilom: did you mean epsilon\?$"),
    (["--data_options.batchsize", "3"], r"got batchsize: did you mean batch_size\?$"),
    (["--view_dropout", "1.5"], "view_dropout must be a number from 0"),
    (["--config", "missing.yaml"], "missing.yaml"),
    (["--config", "bad.yaml"], "bad.yaml|parse|YAML|expected"),
    (["--config", "unknown.yaml"], "learning_rte"),
    (
        ["--config", "group.yaml", "--loop.epochs", "2"],
        "group.yaml: loop must be a mapping of names to values, got int",
    ),
    (["--config", "null.yaml"], "null.yaml: seed must be a whole number, got None"),
    (["--config", "empty.yaml"], "empty.yaml must be a mapping of names to values, got NoneType"),
    (["--config", "bytes.yaml"], "bytes.yaml must be YAML, but it cannot be read"),
    (["--config=egg"], "must be a YAML file or one of domainnet, eeg, imagenet, got 'egg'"),
    (
        ["--views", "a.npy", "b.npy", "--data_options.paths", "[c.npy]"],
        "--views must not be combined with data_options.paths",
    ),
    (["--data_options.standardize", "maybe"], "standardize must be true or false, got 'maybe'"),
    (["--data_options.num_workers", "many"], "num_workers must be a whole number, got 'many'"),
    (["--data_options.val", "x"], "val must be a number, got 'x'"),
    (["--data_options.seed", "-3"], "seed must be a whole number from 0"),
    (["--data_options.views", "fourier"], "views must be a list of words or null, got 'fourier'"),
    (["--optim.end_weight_decay", "-1"], "optim.end_weight_decay must be a finite number of at least 0"),
    (["--resume", "missing"], "there is none at missing"),
    (["--resume"], "got none under runs/"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_wrong_arguments_of_train_are_reported_in_one_line(here, capsys, arguments, message):
    arguments = [str(here / a) if (here / a).exists() else a for a in arguments]
    line = fails(["train", *arguments], capsys)
    assert re.search(message, line), line
    assert list(here.parent.joinpath("work").iterdir()) == []


def test_an_existing_run_folder_is_not_touched(here, capsys):
    (here / "run").mkdir()
    assert "does: choose another name" in fails(["train", *QUICK, "--out", here / "run"], capsys)
    assert list((here / "run").iterdir()) == []


def test_resume_rejects_other_settings(here, capsys):
    assert "combined with settings other than" in fails(["train", "--resume", here, "--loop.devices", "7"], capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "the command must be one of train, "),
        (["evaluate"], "run"),
        (["evaluate", "missing"], "there is none at missing"),
        (["evaluate", "."], "no config.yaml"),
        (["embed", "missing", "--out", "a.npz"], "there is none at missing"),
        (["losses", "nonsense"], "must be one of"),
        (["data", "nonsense"], "must be one of"),
        (["bench", "nonsense"], "must be one of"),
        (["bench", "overhead", "--epsilon", "-1"], "--epsilon must be a positive finite number"),
        (["reproduce", "nonsense"], "must be one of"),
        (["push", "missing", "me/mine"], "there is none at missing"),
        (["evalute", "missing"], "got 'evalute': did you mean evaluate?"),
        (["evaluate", ".", "--few_shots", "true"], "got --few_shots: did you mean --few_shot?"),
    ],
)
def test_wrong_arguments_of_other_commands_are_reported_in_one_line(here, capsys, arguments, message):
    assert message in fails(arguments, capsys)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_damaged_image_is_reported_even_by_a_data_worker(tmp_path, monkeypatch, capsys, workers):
    monkeypatch.chdir(tmp_path)
    for kind in ("ape", "bee"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "images" / kind / f"{number}.png")
    (tmp_path / "images" / "ape" / "broken.png").write_text("not an image")
    options = {"root": "images", "size": 16, "batch_size": 9, "val": 0, "test": 0, "num_workers": workers}
    words = [word for name, value in options.items() for word in (f"--data_options.{name}", str(value))]
    line = fails(["train", "--data", "images", *words, *QUICK], capsys)
    assert (
        line == "m3g: error: images must be readable except for at most 1 %, got 1 damaged of 9: images/ape/broken.png."
    )


def test_a_missing_run_is_reported_before_heavy_libraries_are_imported(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "m3g", "evaluate", "missing"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")}
    assert "m3g.cli.main" in loaded
    assert loaded.isdisjoint({"lightning", "transformers", "sklearn", "matplotlib", "pandas", "kornia"})


def test_debug_shows_the_traceback(here, capsys):
    assert main(["train", "--debug", "--loss", "nonsense"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """A machine without a connection: the address of the hub does not respond, and the cache is empty."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    naps = []  # the client would retry for half a minute
    monkeypatch.setattr("time.sleep", naps.append)
    yield
    assert sum(naps) < 1


@pytest.mark.parametrize("pretrained", ["true", "false"])
def test_a_pretrained_encoder_requires_the_hub(here, capsys, no_hub, pretrained):
    options = ["--encoder_options.model", "nobody/nothing", "--encoder_options.pretrained", pretrained]
    line = fails(["train", "--encoder", "transformers", *options], capsys)
    assert "check the name and that the hub is reachable" in line
    assert list(Path.cwd().iterdir()) == []


def test_an_unreachable_hub_is_reported_in_one_line(run, capsys, no_hub):
    assert "repository must be a name on a hub that can be reached" in fails(["push", run, "me/mine"], capsys)


@pytest.fixture
def run(here, capsys):
    """A small finished run."""
    views = ["--views", str(here / "a.npy"), str(here / "b.npy"), "--data_options.batch_size", "20"]
    assert main(["train", *QUICK, *views, "--out", "run"]) == 0
    capsys.readouterr()
    return Path("run")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.yaml", "width: 8", "width: 9", "encoder_options.width was 8 and is 9"),
        ("config.yaml", "seed: 0", "seed: many", "config.yaml: seed must be a whole number, got 'many'"),
        ("config.yaml", "encoder: residual", "encoder: antigravity.Encoder", "pass trust=True"),
        ("config.yaml", "seed: 0", "seed: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_a_run_that_was_tampered_with_is_not_resumed(run, capsys, file, old, new, message):
    content = (run / file).read_text()
    assert old in content
    (run / file).write_text(content.replace(old, new, 1))
    assert message in fails(["train", "--resume", run], capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"view_shapes": [', '"view_shapes": 3, "old": [', "damaged or of another kind"),
        ('"encoder": {', '"encoder": 4, "old": {', "damaged or of another kind"),
        ('"kind": "residual"', '"class_path": "antigravity.Encoder"', "pass trust=True"),
        ('"format"', "format", "damaged or of another kind"),
    ],
)
def test_a_model_that_was_tampered_with_is_not_read(run, capsys, old, new, message):
    content = (run / "model.json").read_text()
    assert old in content
    (run / "model.json").write_text(content.replace(old, new, 1))
    for command in (["evaluate", run], ["embed", run, "--out", "emb.npz"]):
        assert message in fails(command, capsys)


def test_embeddings_go_to_a_new_npz_file(run, capsys):
    assert "--out must be the name of an .npz file, got 'a.txt'" in fails(["embed", run, "--out", "a.txt"], capsys)


def test_resuming_a_finished_run_measures_it_again(run, capsys):
    (run / "results.json").unlink()
    weights = (run / "model.safetensors").read_bytes()
    assert main(["train", "--resume", str(run)]) == 0
    assert "continuing after step 2" in capsys.readouterr().out
    assert (run / "results.json").exists()
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_pickle_in_a_checkpoint_is_not_executed(run, here, capsys):
    class Malicious:
        def __reduce__(self):
            return (open, (str(here / "trace"), "w"))

    torch.save({"m3g_checkpoint": 1, "state": Malicious()}, run / "checkpoints" / "last.ckpt")
    assert "damaged or was written by something else" in fails(["train", "--resume", run], capsys)
    assert not (here / "trace").exists()


def test_a_run_is_not_resumed_on_other_rows(run, here, capsys):
    for name in ("a", "b"):
        np.save(here / f"{name}.npy", np.load(here / f"{name}.npy")[:-1])
    line = fails(["train", "--resume", run], capsys)
    assert "data must be the 42 training rows that the run began with, got 41" in line
