"""Runs are used from any directory, and after they or their data were moved."""

import json
import shutil

import numpy as np
import pytest

from animals import rows, write_csv
from m3g.cli import main

SMALL = [
    "--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0", "--data_options.batch_size", "16",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which two runs were trained with relative paths: on arrays, one of them in an archive; on a table."""
    folder = tmp_path_factory.mktemp("trained")
    views = np.random.default_rng(0).normal(size=(2, 60, 4))
    (folder / "data").mkdir()
    np.save(folder / "data" / "a.npy", views[0])
    np.savez(folder / "data" / "b.npz", u=views[1], v=views[0])
    np.save(folder / "data" / "y.npy", np.arange(60) % 3)
    write_csv(folder / "data", rows(folder / "data", 40, absent=False))
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


def use_all(run, tmp_path, monkeypatch, *more, audited=True):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for command, options in COMMANDS.items():
        if command != "audit" or audited:
            assert main([command, str(run), *options, *more]) == 0, command


@pytest.mark.parametrize("name", ["arrays", "table"])
def test_a_run_is_read_from_another_directory(trained, tmp_path, monkeypatch, name):
    shutil.copytree(trained / "runs" / name, tmp_path / "copy")
    use_all(tmp_path / "copy", tmp_path, monkeypatch, audited=name == "arrays")
    page = (tmp_path / "copy" / "report.html").read_text(encoding="utf-8")
    assert str(trained) not in page  # which may be sent to others


@pytest.mark.parametrize("name", ["arrays", "table"])
def test_a_run_may_move_together_with_its_data(trained, tmp_path, monkeypatch, name):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / name
    facts = json.loads((run / "environment.json").read_text())
    assert facts["directory_from_run"] == "../.."
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    use_all(run, tmp_path, monkeypatch, audited=name == "arrays")


def test_moved_data_is_named_and_found_below_a_root(trained, tmp_path, monkeypatch, refused, capsys):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / "arrays"
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    shutil.move(tmp_path / "all" / "data" / "b.npz", tmp_path / "b.npz")
    line = refused("evaluate", run)
    assert "data_options.paths of" in line
    assert "there is none at data/b.npz (the run was trained in" in line
    assert "--data-root" in line
    assert "--data-root must be a folder that exists" in refused("evaluate", run, "--data-root", tmp_path / "none")
    assert "also below" in refused("evaluate", run, "--data-root", tmp_path / "all")
    use_all(run, tmp_path, monkeypatch, "--data-root", str(tmp_path))


def test_a_resumed_run_finds_its_data(trained, tmp_path, monkeypatch):
    shutil.copytree(trained / "runs" / "arrays", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", "run"]) == 0


def test_a_resumed_run_finds_moved_data_below_a_root(trained, tmp_path, monkeypatch, refused, capsys):
    shutil.copytree(trained, tmp_path / "all")
    run = tmp_path / "all" / "runs" / "arrays"
    facts = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**facts, "directory": str(tmp_path / "gone")}))
    shutil.move(tmp_path / "all" / "data", tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert "--data-root" in refused("train", "--resume", run)
    assert "--data-root must be a folder that exists" in refused("train", "--resume", run, "--data-root", "none")
    assert "--data-root must be used with --resume" in refused("train", "--data-root", tmp_path)
    assert main(["train", "--resume", str(run), "--data-root", "moved", "--loop.epochs", "2"]) == 0
    assert "continuing after step" in capsys.readouterr().out
