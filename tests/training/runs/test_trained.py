"""Views of every kind from one table: training, evaluation and new data, by the command line."""

import contextlib
import io
import signal

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

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
    """A folder with a table of every kind and a run on it, the table, and the output of the training."""
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
def test_a_run_on_every_kind_killed_and_resumed_ends_with_identical_weights(trained, tmp_path, workers):
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


def test_a_run_evaluates_and_embeds_its_data_and_new_data(trained, tmp_path, capsys):
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
    embedded = np.load(tmp_path / "new.npz")
    assert embedded["views"].tolist() == ["photo", "sound", "caption", "table", "vector"]
    expected = [
        [row["photo"] is not None for row in content],
        [False] * 6,
        [row["caption"] is not None for row in content],
    ]
    assert embedded["mask"].tolist() == [*expected, [row["age"] is not None for row in content], [True] * 6]
    assert np.isfinite(embedded["embeddings"]).all()
    assert not embedded["embeddings"][~embedded["mask"]].any()
    units = embedded["embeddings"] / np.linalg.norm(embedded["embeddings"], axis=-1, keepdims=True).clip(1e-12)
    np.testing.assert_allclose(embedded["mean"], units.sum(0) / embedded["mask"].sum(0)[:, None], rtol=1e-4, atol=1e-5)


def test_a_loaded_network_accepts_every_kind_of_input(trained, tmp_path):
    folder, _, _ = trained
    net = m3g.load(folder / "run")
    content = rows(tmp_path / "new", 4, seed=5, missing=False)
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
        ({"taste": [1]}, "views must be named photo, sound, caption, table, vector, age, colour, got 'taste'"),
        ({"captoin": "a"}, "got 'captoin': did you mean caption?"),
        ({"age": 3, "table": {"age": 3}}, "views must have either 'table' or its columns, got both"),
        ({"caption": []}, "view 'caption' must have at least one row, got none"),
        ({"caption": 5}, "view 'caption' must be text, got int 5"),
        ({"photo": "/nowhere.png"}, "'/nowhere.png' in row 0: no such file.$"),
        (
            "a red cat",
            "must be a table that exists, got 'a red cat': to embed a single value, pass a dict, such as {'photo'",
        ),
        (Image.new("RGB", (8, 8)), "or a dict such as {'photo': ...}, got Image"),
        ({"vector": np.zeros((2, 3))}, r"'vector' must have rows of shape \(4,\), got \(3,\)"),
        ({}, "at least one must be given"),
        ({"vector": np.zeros((2, 4)), "caption": ["a"]}, "views must have the same length"),
        ([None] * 3, "views must be a list of 5 views .None for a missing view. or a dict .*got 3"),
        ({"caption": [None, "a"]}, "every row must have at least one view, got none in row 0"),
    ):
        with pytest.raises(ValueError, match=message):
            net.embed(wrong)


def test_single_values_images_and_frames_are_accepted(trained, tmp_path):
    folder, _, _ = trained
    net = m3g.load(folder / "run")
    content = rows(tmp_path / "new", 3, seed=5, missing=False)
    expected = net.embed(str(write_csv(tmp_path / "new", content))).embeddings
    paths = [tmp_path / "new" / row["photo"] for row in content]
    pictures = [Image.open(path) for path in paths]
    cells = [{"age": row["age"], "colour": row["colour"]} for row in content]
    frame = pandas.DataFrame([{**row, "photo": str(path), "sound": None} for row, path in zip(content, paths)])
    tolerances = {"rtol": 1e-4, "atol": 1e-5}
    for view, given in (
        ("photo", pictures),
        ("photo", [pictures[0], *paths[1:]]),
        ("table", cells),
        ("table", pandas.DataFrame(cells)),
        ("caption", frame["caption"]),
        ("caption", np.array([row["caption"] for row in content])),
        ("caption", np.array([row["caption"] for row in content], dtype=object)),
        ("photo", np.array([str(path) for path in paths])),
    ):
        l = net.view_names.index(view)
        torch.testing.assert_close(net.embed({view: given}).embeddings[l], expected[l], **tolerances)
    whole = net.embed(frame[["caption", "photo", "age", "colour"]])
    for l, view in enumerate(net.view_names):
        assert bool(whole.mask[l].all()) == (view in ("caption", "photo", "table"))
        if bool(whole.mask[l].all()):
            torch.testing.assert_close(whole.embeddings[l], expected[l], **tolerances)
    row = net.embed(frame[["caption", "photo", "age", "colour"]].iloc[1])
    torch.testing.assert_close(row.embeddings, whole.embeddings[:, 1:2], **tolerances)
    columns = net.embed({"age": [row["age"] for row in content], "colour": frame["colour"]})
    table = net.view_names.index("table")
    torch.testing.assert_close(columns.embeddings[table], expected[table], **tolerances)
    for missing in (float("nan"), None, pandas.NA):
        some = net.embed(
            {"caption": [missing, content[1]["caption"]], "vector": [row["vector"] for row in content[:2]]}
        )
        assert some.mask[net.view_names.index("caption")].tolist() == [False, True]
    single = {
        "photo": pictures[0],
        "sound": str(tmp_path / "new" / content[0]["sound"]),
        "caption": content[0]["caption"],
        "table": cells[0],
        "vector": content[0]["vector"],
    }
    torch.testing.assert_close(net.embed(single).embeddings, expected[:, :1], **tolerances)
    for wrong, message in (
        ({"caption": pictures[0]}, "view 'caption' must be text, got an image"),
        ({"vector": object()}, r"view 'vector' must be numbers with rows of shape \(4,\), got"),
        ({"photo": [pictures[0], "nowhere.png"]}, "must be image files that exist, got 'nowhere.png'"),
        ({"table": {"age": [1, 2], "colour": ["red"]}}, "view 'table' must have columns of one length"),
        (pandas.DataFrame({"taste": [1]}), "views must have at least one of the columns .*, got taste"),
        (frame.iloc[:0], "must have at least one row, got none"),
        ({"caption": frame["caption"][:0]}, "view 'caption' must have at least one row, got none"),
        ({"photo": b"no image"}, "images must be readable .* got 1 damaged of 1: in the table, view 'photo'"),
        ({"sound": b"no sound"}, "sounds must be readable .* got 1 damaged of 1: in the table, view 'sound'"),
        ({"sound": [0.1, 0.2, 0.3]}, r"must have rows of shape \(\d+,\), got an array of shape \(3,\)"),
        ({"age": [1, "old"]}, "view 'table' must have cells of one type in column 'age', got others"),
        (str(paths[0]), "views must be a table that exists, got .* to embed a single value, pass a dict"),
        ([{"captain": "red"}], "views must be named .*, got 'captain': did you mean caption"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            net.embed(wrong)
        assert "\n" not in str(error.value)


def test_a_list_of_rows_provides_all_of_its_views(trained, tmp_path):
    net = m3g.load(trained[0] / "run")
    content = rows(tmp_path, 2, seed=5, missing=False)
    image = Image.open(tmp_path / content[0]["photo"]).copy()
    embedded = net.embed(
        [{"photo": image, "age": 3, "vector": None}, {"vector": content[1]["vector"], "caption": "red"}]
    )
    separate = [net.embed({"photo": image, "age": 3}), net.embed({"vector": content[1]["vector"], "caption": "red"})]
    torch.testing.assert_close(embedded.embeddings, torch.cat([part.embeddings for part in separate], dim=1))
    assert embedded.mask.tolist() == torch.cat([part.mask for part in separate], dim=1).tolist()
    assert embedded.mask.sum().item() == 4


def test_values_that_do_not_occur_in_the_training_rows_are_reported(trained, error_line):
    run = trained[0] / "run"
    with pytest.warns(
        UserWarning, match=r"without a word or category of the training rows \(1 in all, such as 'pink'\)"
    ):
        m3g.load(run).embed({"colour": ["pink", "red", None], "age": [1, 2, 3]})
    line = error_line("search", run, "--query", "colour=pink")
    assert "--query must have a category of the training rows in 'colour', got 'pink'." in line


def test_a_sound_is_a_query_that_finds_its_row(trained, tmp_path, monkeypatch, capsys, error_line):
    folder, table, _ = trained
    monkeypatch.chdir(tmp_path)
    row = next(number for number, cells in enumerate(pandas.read_csv(table)["sound"]) if isinstance(cells, str))
    sound = folder / pandas.read_csv(table)["sound"][row]
    search = ["search", str(folder / "run"), "--query", f"sound={sound}", "--in", "sound", "--top", "2"]
    assert main([*search, "--out", "found.csv"]) == 0
    assert pandas.read_csv("found.csv")["row"][0] == row
    assert main([*search, "--out", "found.html"]) == 0
    page = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert page.count("<audio controls") == 3  # the query and two rows
    photo = folder / pandas.read_csv(table)["photo"].dropna().iloc[0]
    assert "view 'sound' must be readable sounds" in error_line("search", folder / "run", "--query", f"sound={photo}")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "float64", "bool"])
def test_arrays_and_tensors_of_any_dtype_are_accepted(finished, dtype):
    net = m3g.load(finished / "run")
    views = [np.random.default_rng(seed).integers(0, 2, (6, 5)).astype(dtype) for seed in range(2)]
    expected = net([torch.from_numpy(view.astype(np.float32)) for view in views])
    assert expected.shape[:2] == (2, 6)
    torch.testing.assert_close(net(views), expected)
    torch.testing.assert_close(net([torch.from_numpy(view) for view in views]), expected)
    torch.testing.assert_close(net.embed({"b": views[1]}).embeddings[1], expected[1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_a_call_with_integer_images_preprocesses_them(tmp_path, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 12, 16, 16, 3)).astype(np.uint8)
    for view, images in zip(("left", "right"), pixels):
        for row, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / f"{view}{row}.png")
    lines = [f"left{row}.png,right{row}.png" for row in range(12)]
    (tmp_path / "pairs.csv").write_text("\n".join(["left,right", *lines]) + "\n", encoding="utf-8")
    settings = ["--loop.epochs", "1", "--loop.evaluate_every", "0", "--loop.accelerator", "cpu", "--heads.hidden", "8"]
    with one_thread(), contextlib.redirect_stdout(io.StringIO()):
        assert main(["train", "--table", str(tmp_path / "pairs.csv"), *settings, "--out", str(tmp_path / "run")]) == 0
    net = m3g.load(tmp_path / "run")
    files = [[str(tmp_path / f"{view}{row}.png") for row in range(12)] for view in ("left", "right")]
    views = [torch.from_numpy(images).to(dtype) for images in pixels]
    torch.testing.assert_close(net(views), net(files))
    torch.testing.assert_close(net.embed(views).embeddings, net(files))
