"""Runs are used from any directory, and after they or their data were moved."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from animals import rows, write_csv
from m3g.cli import main

SMALL = [
    "--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0", "--data_options.batch_size", "16",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with two runs that were trained with relative paths: on arrays (one is in an archive) and on a table."""
    folder = tmp_path_factory.mktemp("trained")
    views = np.random.default_rng(0).normal(size=(2, 60, 4))
    (folder / "data").mkdir()
    np.save(folder / "data" / "a.npy", views[0])
    np.savez(folder / "data" / "b.npz", u=views[1], v=views[0])
    np.save(folder / "data" / "y.npy", np.arange(60) % 3)
    write_csv(folder / "data", rows(folder / "data", 40, missing=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arrays = ["--views", "data/a.npy", "data/b.npz:u", "--labels", "data/y.npy", "--mismatch", "true"]
        table = ["--table", "data/objects.csv", "--data_options.ignore", "[sound, vector, home, kind]"]
        for out, data in {"runs/arrays": arrays, "runs/table": table}.items():
            assert main(["train", *SMALL, *data, "--out", out]) == 0
    return folder


COMMANDS = {
    "evaluate": [], "report": [], "search": ["--query", "3"], "audit": ["--count", "2"], "embed": ["--out", "e.npz"],
}  # fmt: skip


def run_all_commands(run, tmp_path, monkeypatch, *more, audited=True):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for command, options in COMMANDS.items():
        if command != "audit" or audited:
            assert main([command, str(run), *options, *more]) == 0, command


@pytest.mark.parametrize("name", ["arrays", "table"])
def test_a_run_is_read_from_another_directory(trained, tmp_path, monkeypatch, name):
    shutil.copytree(trained / "runs" / name, tmp_path / "copy")
    run_all_commands(tmp_path / "copy", tmp_path, monkeypatch, audited=name == "arrays")
    page = (tmp_path / "copy" / "report.html").read_text(encoding="utf-8")
    assert str(trained) not in page  # the page may be sent to others


@pytest.mark.parametrize("name", ["arrays", "table"])
def test_a_run_may_move_together_with_its_data(trained, tmp_path, monkeypatch, name):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / name
    facts = json.loads((run / "environment.json").read_text())
    assert facts["directory_from_run"] == "../.."
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    run_all_commands(run, tmp_path, monkeypatch, audited=name == "arrays")


def test_moved_data_is_named_and_found_below_a_root(trained, tmp_path, monkeypatch, error_line, capsys):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / "arrays"
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    shutil.move(tmp_path / "all" / "data" / "b.npz", tmp_path / "b.npz")
    line = error_line("evaluate", run)
    assert "data_options.paths of" in line
    assert "there is none at data/b.npz (the run was trained in" in line
    assert "--data-root" in line
    assert "--data-root must be a folder that exists" in error_line("evaluate", run, "--data-root", tmp_path / "none")
    assert "nor below" in error_line("evaluate", run, "--data-root", tmp_path / "all")
    run_all_commands(run, tmp_path, monkeypatch, "--data-root", str(tmp_path))


def test_a_resumed_run_finds_its_data(trained, tmp_path, monkeypatch):
    shutil.copytree(trained / "runs" / "arrays", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "run"]) == 0


def test_a_resumed_run_finds_moved_data_below_a_root(trained, tmp_path, monkeypatch, error_line, capsys):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / "arrays"
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    shutil.move(tmp_path / "all" / "data", tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert "--data-root" in error_line("train", "--resume", run)
    assert "--data-root must be a folder that exists" in error_line("train", "--resume", run, "--data-root", "none")
    assert "--data-root must be used with --resume" in error_line("train", "--data-root", tmp_path)
    assert main(["train", "--resume", str(run), "--data-root", "moved", "--loop.epochs", "2"]) == 0
    assert "continuing after step" in capsys.readouterr().out


def with_absolute_paths(run, folder):
    """Train on a table in `folder / "data"` whose cells are absolute paths."""
    content = rows(folder / "data", 40, missing=False)
    for row in content:
        row["photo"] = folder / "data" / str(row["photo"])
    table = write_csv(folder / "data", content)
    options = ["--data_options.ignore", "[sound, vector, home, kind]", "--mismatch", "true"]
    assert main(["train", *SMALL, "--table", str(table), *options, "--out", str(run)]) == 0


@pytest.mark.parametrize("root", [[], ["--data-root", "renamed"]])
def test_absolute_paths_in_a_table_are_found_below_its_new_folder(tmp_path, monkeypatch, error_line, root):
    folder = tmp_path / "old"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with_absolute_paths(folder / "runs" / "a" if not root else tmp_path / "run", folder)
    monkeypatch.chdir(tmp_path)
    folder.rename(tmp_path / "renamed")
    run = tmp_path / ("run" if root else "renamed/runs/a")
    if root:
        assert "--data-root" in error_line("embed", run, "--out", "e.npz")
    run_all_commands(run, tmp_path, monkeypatch, *[part.replace("renamed", str(tmp_path / "renamed")) for part in root])
    options = ["--query", "3", "--out", "page.html", *[part.replace("renamed", "../renamed") for part in root]]
    assert main(["search", str(run), *options]) == 0
    assert (tmp_path / "elsewhere/page.html").read_text().count("<img") == 10
    assert main(["train", "--resume", str(run), *options[4:], "--loop.epochs", "2"]) == 0


def test_images_that_were_moved_without_their_table_are_named_and_found(tmp_path, monkeypatch, error_line):
    with_absolute_paths(tmp_path / "run", tmp_path)
    (tmp_path / "photos").mkdir()
    for photo in (tmp_path / "data").glob("*.png"):
        photo.rename(tmp_path / "photos" / photo.name)
    line = error_line("embed", tmp_path / "run", "--out", "e.npz")
    assert "data/0.png' in row 0: no such file; if it is elsewhere, pass its folder with --data-root." in line
    run_all_commands(tmp_path / "run", tmp_path, monkeypatch, "--data-root", str(tmp_path / "photos"))


def test_a_folder_of_images_that_was_renamed_is_found(tmp_path, monkeypatch, error_line):
    random = np.random.default_rng(0)
    for i in range(24):
        (tmp_path / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / "ab"[i % 2] / f"{i}.png")
    options = ["--data_options.root", str(tmp_path / "images"), "--data_options.size", "16"]
    assert main(["train", *SMALL, "--data", "images", *options, "--out", str(tmp_path / "run")]) == 0
    (tmp_path / "images").rename(tmp_path / "photos")
    assert "must be a file or folder that exists" in error_line("report", tmp_path / "run")
    run_all_commands(tmp_path / "run", tmp_path, monkeypatch, "--data-root", str(tmp_path / "photos"), audited=False)
