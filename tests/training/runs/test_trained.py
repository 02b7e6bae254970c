"""Views of every kind from one table: training, evaluation and new data, by the command line."""

import contextlib
import io
import json
import signal

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import forked
import m3g
from animals import rows, write_csv
from m3g.cli import main

SMALL = [
    "--data_options.batch_size", "8", "--loop.epochs", "3", "--loop.checkpoint_every", "2",
    "--loop.evaluate_every", "0",
    "--loop.accelerator", "cpu", "--heads.hidden", "8", "--heads.embedding_size", "8",
    "--view.photo.encoder", "conv", "--view.photo.channels", "[8]", "--view.sound.encoder", "spectrogram",
    "--view.sound.channels", "[8]", "--view.caption.width", "8", "--view.caption.heads", "2",
    "--view.caption.dropout", "0.1",
    "--view.table.width", "8", "--data_options.ignore", "[home]",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table of every kind with empty cells, and a run on it; with its lines."""
    folder = tmp_path_factory.mktemp("kinds")
    table = write_csv(folder, rows(folder, 40))
    output = io.StringIO()
    with one_thread(), contextlib.redirect_stdout(output):
        assert main(["train", "--table", str(table), "--labels", "kind", *SMALL, "--out", str(folder / "run")]) == 0
    return folder, table, output.getvalue()


@contextlib.contextmanager
def one_thread():
    """The order of summation depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_first_lines_report_kinds_and_encoders(trained):
    lines = trained[2].splitlines()
    for line in (
        "  photo    image 3x20x20, encoder conv",
        "  caption  text 24, encoder text",
        "  table    table 4, encoder residual",
        "  vector   vector 4, encoder residual",
    ):
        assert line in lines
    assert any(line.startswith("  sound    audio 20") and line.endswith("encoder spectrogram") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_on_every_kind_killed_and_resumed_ends_with_the_same_bits(trained, tmp_path, workers):
    folder, table, _ = trained
    killed = tmp_path / "killed"
    command = ["train", "--table", table, "--labels", "kind", *SMALL, "--data_options.num_workers", workers]
    code, output = forked.run([*command, "--out", killed], tmp_path, tmp_path, killed=(4, 0))
    assert code == -signal.SIGKILL, output
    assert not (killed / "model.safetensors").exists()
    with one_thread():
        assert main(["train", "--resume", str(killed)]) == 0
    assert (killed / "model.safetensors").read_bytes() == (folder / "run" / "model.safetensors").read_bytes()
    assert (killed / "metrics.csv").read_bytes() == (folder / "run" / "metrics.csv").read_bytes()


def test_it_evaluates_and_embeds_its_own_data_and_new_data(trained, tmp_path, capsys):
    folder, _, _ = trained
    run = folder / "run"
    assert main(["evaluate", str(run)]) == 0
    assert main(["embed", str(run), "--out", str(tmp_path / "own.npz"), "--split", "test"]) == 0
    content = rows(tmp_path / "new", 6, seed=5)
    some = [{key: row[key] for key in ("caption", "photo", "age")} for row in content]
    table = write_csv(tmp_path / "new", some, "some.csv")
    np.save(tmp_path / "v.npy", np.array([row["vector"] for row in content]))
    new = ["--table", str(table), "--views", f"vector={tmp_path / 'v.npy'}"]
    assert main(["embed", str(run), "--out", str(tmp_path / "new.npz"), *new]) == 0
    found = np.load(tmp_path / "new.npz")
    assert found["views"].tolist() == ["photo", "sound", "caption", "table", "vector"]
    expected = [
        [row["photo"] is not None for row in content],
        [False] * 6,
        [row["caption"] is not None for row in content],
    ]
    assert found["mask"].tolist() == [*expected, [row["age"] is not None for row in content], [True] * 6]
    assert np.isfinite(found["embeddings"]).all()
    assert not found["embeddings"][~found["mask"]].any()
    units = found["embeddings"] / np.linalg.norm(found["embeddings"], axis=-1, keepdims=True).clip(1e-12)
    np.testing.assert_allclose(found["mean"], units.sum(0) / found["mask"].sum(0)[:, None], rtol=1e-4, atol=1e-5)


def test_a_loaded_network_accepts_every_kind_of_input(trained, tmp_path):
    folder, _, _ = trained
    net = m3g.load(folder / "run")
    content = rows(tmp_path / "new", 4, seed=5, absent=False)
    table = net.embed(str(write_csv(tmp_path / "new", content)))
    assert bool(table.mask.all())
    by_name = {
        "photo": [tmp_path / "new" / row["photo"] for row in content],
        "sound": [str(tmp_path / "new" / row["sound"]) for row in content],
        "caption": [row["caption"] for row in content],
        "table": {"age": [row["age"] for row in content], "colour": [row["colour"] for row in content]},
        "vector": np.array([row["vector"] for row in content]),
    }
    again = net.embed(by_name)
    torch.testing.assert_close(again.embeddings, table.embeddings)
    torch.testing.assert_close(again.mean, table.mean)
    some = net.embed({"caption": [None, *by_name["caption"][1:]], "vector": by_name["vector"]})
    assert some.mask.tolist() == [[False] * 4, [False] * 4, [False, True, True, True], [False] * 4, [True] * 4]
    torch.testing.assert_close(some.embeddings[2, 1:], table.embeddings[2, 1:])
    torch.testing.assert_close(some.mean[0], torch.nn.functional.normalize(table.embeddings[4, 0], dim=0))
    torch.testing.assert_close(net([None] * 4 + [by_name["vector"]])[4], table.embeddings[4])
    for wrong, message in (
        ({"taste": [1]}, "views must be named photo, sound, caption, table, vector, got 'taste'"),
        ({"vector": np.zeros((2, 3))}, r"'vector' must have rows of shape \(4,\), got \(3,\)"),
        ({}, "at least one of them present"),
        ({"vector": np.zeros((2, 4)), "caption": ["a"]}, "views must have the same rows"),
        ([None] * 3, "views must have 5 entries, None for a missing one, got 3"),
        ({"caption": [None, "a"]}, "every row must have at least one view, got none in row 0"),
    ):
        with pytest.raises(ValueError, match=message):
            net.embed(wrong)


def test_single_values_images_and_frames_are_accepted(trained, tmp_path):
    folder, _, _ = trained
    net = m3g.load(folder / "run")
    content = rows(tmp_path / "new", 3, seed=5, absent=False)
    expected = net.embed(str(write_csv(tmp_path / "new", content))).embeddings
    paths = [tmp_path / "new" / row["photo"] for row in content]
    pictures = [Image.open(path) for path in paths]
    cells = [{"age": row["age"], "colour": row["colour"]} for row in content]
    frame = pandas.DataFrame([{**row, "photo": str(path), "sound": None} for row, path in zip(content, paths)])
    near = {"rtol": 1e-4, "atol": 1e-5}
    for view, given in (
        ("photo", pictures),
        ("photo", [pictures[0], *paths[1:]]),
        ("table", cells),
        ("table", pandas.DataFrame(cells)),
        ("caption", frame["caption"]),
    ):
        l = net.view_names.index(view)
        torch.testing.assert_close(net.embed({view: given}).embeddings[l], expected[l], **near)
    whole = net.embed(frame[["caption", "photo", "age", "colour"]])
    for l, view in enumerate(net.view_names):
        assert bool(whole.mask[l].all()) == (view in ("caption", "photo", "table"))
        if bool(whole.mask[l].all()):
            torch.testing.assert_close(whole.embeddings[l], expected[l], **near)
    single = {
        "photo": pictures[0],
        "sound": str(tmp_path / "new" / content[0]["sound"]),
        "caption": content[0]["caption"],
        "table": cells[0],
        "vector": content[0]["vector"],
    }
    torch.testing.assert_close(net.embed(single).embeddings, expected[:, :1], **near)
    for wrong, message in (
        ({"caption": pictures[0]}, "view 'caption' must be text, got an image"),
        ({"vector": object()}, r"view 'vector' must be numbers with rows of shape \(4,\), got"),
        ({"photo": [pictures[0], "nowhere.png"]}, "must be image files that exist, got 'nowhere.png'"),
        ({"table": {"age": [1, 2], "colour": ["red"]}}, "view 'table' must have columns of one length"),
        (pandas.DataFrame({"taste": [1]}), "views must have at least one of the columns .*, got taste"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            net.embed(wrong)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "float64", "bool"])
def test_arrays_and_tensors_of_any_dtype_are_accepted(finished, dtype):
    net = m3g.load(finished / "run")
    views = [np.random.default_rng(seed).integers(0, 2, (6, 5)).astype(dtype) for seed in range(2)]
    expected = net([torch.from_numpy(view.astype(np.float32)) for view in views])
    assert expected.shape[:2] == (2, 6)
    torch.testing.assert_close(net(views), expected)
    torch.testing.assert_close(net([torch.from_numpy(view) for view in views]), expected)
    torch.testing.assert_close(net.embed({"b": views[1]}).embeddings[1], expected[1])


def test_embed_accepts_files_of_some_views(finished, tmp_path, refused):
    run = finished / "run"
    np.save(tmp_path / "b.npy", np.ones((3, 5)))
    np.save(tmp_path / "other.npy", np.ones((3, 5)))
    out = tmp_path / "new.npz"
    assert main(["embed", str(run), "--out", str(out), "--views", str(tmp_path / "b.npy")]) == 0
    assert np.load(out)["mask"].tolist() == [[False] * 3, [True] * 3]
    assert "NAME=FILE" in refused("embed", run, "--out", tmp_path / "x.npz", "--views", tmp_path / "other.npy")
    wrong = ["--table", tmp_path / "b.csv"]
    (tmp_path / "b.csv").write_text("x\n1\n")
    assert "views must be arrays" in refused("embed", run, "--out", tmp_path / "x.npz", *wrong)
    assert not (tmp_path / "x.npz").exists()


def test_views_share_weights_and_keep_them(finished, tmp_path):
    views = [str(finished / f"{name}.npy") for name in ("a", "b")]
    options = ["--view.a.width", "8", "--view.b.share", "a", "--loop.epochs", "1", "--data_options.batch_size", "20"]
    options += ["--encoder", "mlp", "--loop.patience", "0"]
    assert main(["train", "--views", *views, *options, "--out", str(tmp_path / "shared")]) == 0
    weights = load_file(tmp_path / "shared" / "model.safetensors")
    assert torch.equal(weights["encoders.0.layers.1.weight"], weights["encoders.1.layers.1.weight"])
    options = ["--view.a.frozen", "true", "--view.b.learning_rate", "1e-4", *options[4:]]
    for epochs in ("1", "2"):
        command = ["train", "--views", *views, *options, "--loop.epochs", epochs, "--out", str(tmp_path / epochs)]
        assert main(command) == 0
    one, two = (load_file(tmp_path / epochs / "model.safetensors") for epochs in ("1", "2"))
    assert torch.equal(one["encoders.0.layers.1.weight"], two["encoders.0.layers.1.weight"])
    assert not torch.equal(one["encoders.1.layers.1.weight"], two["encoders.1.layers.1.weight"])


def test_a_view_that_no_test_row_has_is_excluded_from_the_scores(tmp_path, capsys):
    content = [
        {
            "a": [i % 3, 1.0 + i, 2.0],
            "b": [1.0 * i, 2.0],
            "c": None if i >= 30 else [3.0, 1.0 * i],
            "kind": f"kind {i % 3}",
            "part": "test" if i >= 30 else "train",
        }
        for i in range(45)
    ]
    table = write_csv(tmp_path, content)
    options = ["--data_options.batch_size", "10", "--loop.epochs", "1", "--loop.evaluate_every", "0"]
    columns = ["--labels", "kind", "--split", "part"]
    assert main(["train", "--table", str(table), *columns, *options, "--out", str(tmp_path / "run")]) == 0
    assert "evaluated without c: missing from all test rows" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "results.json").read_text())["views"] == ["a", "b"]
