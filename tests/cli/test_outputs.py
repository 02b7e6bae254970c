"""Output of the commands: separate folders, and tables without formulas."""

import csv
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from finished_run import QUICK
from m3g.cli import main
from m3g.cli.output import write_csv
from m3g.training.loop import build
from m3g.training.mismatch.audit import Audit
from m3g.training.mismatch.entries import Entry
from m3g.training.runs.numbered import make_numbered, reserved


def test_simultaneous_processes_get_separate_folders(tmp_path):
    """Another process may choose the same name before the first file is written."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_numbered(tmp_path / "runs", "m3g"), range(24)))
    assert {path.name for path in made} == {f"m3g-{number}" for number in range(1, 25)}


def test_a_reserved_folder_is_removed_if_nothing_was_written(tmp_path):
    with reserved(tmp_path / "runs", "m3g") as folder:
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").write_text("")
    with pytest.raises(ValueError, match="must be a folder"), reserved(tmp_path / "runs", "m3g"):
        pass


def test_three_simultaneous_runs_have_separate_folders(tmp_path, monkeypatch, capsys):
    """The other two start while the first one reads its data, after it has chosen its folder."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("a.npy", "b.npy")):
        np.save(name, np.random.default_rng(seed).standard_normal((60, 5)))
    words = ["train", *QUICK, "--views", "a.npy", "b.npy", "--data_options.batch_size", "20"]
    original, depth = build.build_data, []

    def interrupted(config, run):
        if len(depth) < 2:
            depth.append(None)
            assert main(words) == 0
        return original(config)

    monkeypatch.setattr(build, "build_data", interrupted)
    assert main(words) == 0
    for number in (1, 2, 3):
        assert (tmp_path / "runs" / f"m3g-{number}" / "results.json").is_file()


@pytest.mark.parametrize("command", ["match", "audit"])
def test_cells_of_csv_files_are_not_formulas(command, tmp_path, copy):
    """Names of files and views are untrusted."""
    cells = ["=cmd", "+1+1", "-2+3", "@x", "\tx", "\rx", "-1.5", "+2", "plain"]
    write_csv(tmp_path / "t.csv", ["=head", *cells[1:]], [cells])
    head, row = list(csv.reader((tmp_path / "t.csv").read_text().splitlines(keepends=True)))
    assert head[0] == "'=head"
    assert row == ["'=cmd", "'+1+1", "'-2+3", "'@x", "'\tx", "'\nx", "-1.5", "+2", "plain"]
    if command == "match":
        for seed, name in enumerate(("=a", "-b")):
            np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).standard_normal((5, 3)))
        files = [str(tmp_path / f"{name}.npy") for name in ("=a", "-b")]
        assert main(["match", *files, "--out", str(tmp_path / "m.csv")]) == 0
        assert (tmp_path / "m.csv").read_text().startswith("'=a,'-b,")
    else:
        (copy / "mismatch.csv").write_text("row,view,reliability,log_odds\n7,=b,0.1,-2.2\n")
        audit = "m3g.training.mismatch.audit.audit"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(audit, lambda run, **_: Audit([(Entry(7, "=b", 0.1, -2.2), None)]))
            assert main(["audit", str(copy), "--count", "1", "--out", str(tmp_path / "a.csv")]) == 0
        assert "7,'=b,0.100" in (tmp_path / "a.csv").read_text()


def test_more_devices_than_exist_are_rejected(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("train", "--loop.devices", "9999", "--loop.accelerator", "cpu")
    assert "loop.devices must be at most" in line
    assert "got 9999" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0), ("98", 0)])
def test_one_process_of_many_reports_an_interrupt(monkeypatch, capsys, rank, lines):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["m3g.cli.main"], "_dispatch", interrupted)
    monkeypatch.setenv("RANK", rank)
    assert main(["losses"]) == 130
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without calling its handler of SIGTERM")
@pytest.mark.parametrize("used", [False, True])
def test_a_terminated_process_leaves_no_empty_folder(used, tmp_path):
    program = f"""
import os, signal
from pathlib import Path
from m3g.training.runs.numbered import reserved
with reserved(Path("runs"), "m3g") as folder:
    if {used}:
        (folder / "config.yaml").touch()
    os.kill(os.getpid(), signal.SIGTERM)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert ended.returncode == -signal.SIGTERM
    assert (tmp_path / "runs").exists() == used
