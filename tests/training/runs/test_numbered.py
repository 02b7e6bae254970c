"""Runs without --out get separate folders."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fixtures import QUICK
from m3g.cli import main
from m3g.training.loop import build
from m3g.training.runs.numbered import make_numbered, reserved


def test_simultaneous_processes_get_separate_folders(tmp_path):
    """Another process may choose the same name before the first file is written."""
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: make_numbered(tmp_path / "runs", "m3g"), range(24)))
    assert {path.name for path in folders} == {f"m3g-{number}" for number in range(1, 25)}


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

    def build_after_other_runs(config, run):
        if len(depth) < 2:
            depth.append(None)
            assert main(words) == 0
        return original(config)

    monkeypatch.setattr(build, "build_data", build_after_other_runs)
    assert main(words) == 0
    for number in (1, 2, 3):
        assert (tmp_path / "runs" / f"m3g-{number}" / "results.json").is_file()


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
    completed = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False)
    assert completed.returncode == -signal.SIGTERM
    assert (tmp_path / "runs").exists() == used
