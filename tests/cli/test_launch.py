"""Commands in several processes fail together, in one line, and end with the process that started them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from forked import SMALL
from m3g.cli import main

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "nonsense"], "loss must be one of"),
        (["--loop.sync_batchnorm", "true"], "loop.sync_batchnorm must be false without GPUs"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("by", ["torchrun", "the command"])
def test_an_error_in_all_processes_is_reported_once(tmp_path, arguments, message, by, torchrun, command):
    code, output = (torchrun if by == "torchrun" else command)("train", *SMALL, *arguments)
    assert code == 2
    assert output.count("m3g: error:") == 1, output
    assert message in output
    assert list(tmp_path.iterdir()) == []
    if by == "the command":
        assert len(output.splitlines()) == 1, output


@pytest.mark.slow
def test_processes_that_the_command_starts_fail_in_one_line_while_they_train(tmp_path, command):
    for name, scale in (("a", 1), ("b", 1e30)):
        np.save(tmp_path / f"{name}.npy", scale * np.random.default_rng(0).standard_normal((60, 5)))
    options = ["--data_options.batch_size", "20", "--data_options.standardize", "false"]
    code, output = command("train", *SMALL, "--views", "a.npy", "b.npy", *options)
    assert code == 2
    assert "Traceback" not in output
    assert output.count("m3g: error:") == 1, output
    assert "training stopped at step 0" in output


def test_a_process_ends_when_its_parent_has_ended(tmp_path):
    """Simulate a killed parent: the id in M3G_STARTED_BY is not that of the parent process."""
    script = "import time; from m3g.cli.launch import end_with_parent; end_with_parent(); time.sleep(1000)"
    environment = {**ENVIRONMENT, "M3G_STARTED_BY": "0"}
    assert subprocess.run([sys.executable, "-c", script], env=environment, timeout=300).returncode == 2


@pytest.mark.parametrize(
    ("code", "environment"), [(0, {"TORCHELASTIC_RUN_ID": "1"}), (2, {"TORCHELASTIC_RUN_ID": "1"}), (130, {})]
)
def test_processes_of_a_group_and_interrupted_ones_skip_the_shutdown_of_python(code, environment):
    """Threads of the process group may abort it during shutdown; registered exit handlers still run after success."""
    script = (
        "import atexit, threading, time; from m3g.cli.launch import leave\n"
        "atexit.register(print, 'registered'); threading.Thread(target=time.sleep, args=[1000]).start()\n"
        f"leave({code})"
    )
    environment = {**ENVIRONMENT, **environment}
    completed = subprocess.run(
        [sys.executable, "-c", script], env=environment, timeout=300, capture_output=True, text=True
    )
    assert (completed.returncode, completed.stdout) == (code, "registered\n" if code == 0 else "")


def test_the_installed_command_skips_the_shutdown_too():
    entry = re.search(r'^m3g = "([\w.]+):(\w+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    module, function = entry.groups()
    script = (
        f"import sys, threading, time; from {module} import {function}; sys.argv = ['m3g', '--version']\n"
        f"threading.Thread(target=time.sleep, args=[1000]).start(); sys.exit({function}())"
    )
    environment = {**ENVIRONMENT, "TORCHELASTIC_RUN_ID": "test"}
    completed = subprocess.run(
        [sys.executable, "-c", script], env=environment, timeout=300, capture_output=True, text=True
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith("m3g ")


@pytest.mark.slow
@pytest.mark.parametrize(("when", "rank"), [("before", "1"), ("during", "1"), ("during", "0")])
def test_a_process_that_fails_alone_stops_all(tmp_path, rank, when, torchrun):
    """The files of one process are wrong: a view is missing, or its numbers are so large that training stops."""
    rng = np.random.default_rng(0)
    for folder in ("0", "1"):
        (tmp_path / folder).mkdir()
        for name in ("a.npy", "b.npy"):
            np.save(tmp_path / folder / name, rng.standard_normal((60, 5)))
    if when == "before":
        (tmp_path / rank / "b.npy").unlink()
    else:
        huge = np.full((60, 5), 1e30, dtype=np.float32)
        np.save(tmp_path / rank / "b.npy", huge)
    arguments = ["--views", "a.npy", "b.npy", "--data_options.batch_size", "20", "--data_options.standardize", "false"]
    arguments += ["--encoder", "mlp"]  # initialisation with linear CCA would raise another error
    code, output = torchrun("train", *SMALL, *arguments, "--out", "run", folders=[tmp_path / "0", tmp_path / "1"])
    assert code == 2
    assert output.count("m3g: error:") == 1, output
    assert "threads left" not in output
    words = "b.npy" if when == "before" else "training stopped at step"
    assert words in output
    if when == "before":
        assert not (tmp_path / "0" / "run").exists()


def test_more_devices_than_exist_are_rejected(error_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = error_line("train", "--loop.devices", "9999", "--loop.accelerator", "cpu")
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
