"""Ctrl-C while a training in several processes starts, imports, and trains: one line in total."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORDS = ["train", "--loop.devices", "2", "--loop.accelerator", "cpu", "--loop.evaluate_every", "0", "--out", "run"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def started(pid):
    """Return the child processes of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def memory(pid):
    """Return the memory of a process in MiB, which grows during imports."""
    try:
        line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0
    return int(line.split()[1]) // 1024


def has_begun(folder, pid):
    metrics = folder / "run" / "metrics.csv"
    return metrics.exists() and len(metrics.read_text().splitlines()) > 3


MOMENTS = {
    "imports of the command": lambda folder, pid: memory(pid) > 40,
    "start of the processes": lambda folder, pid: len(started(pid)) == 2,
    "imports of the processes": lambda folder, pid: len(started(pid)) == 2 and min(map(memory, started(pid))) > 60,
    "training": has_begun,
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the moment is read from /proc (Linux)")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="m3g refuses more processes than cores")
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_of_several_processes_is_one_line(tmp_path, moment):
    # Rarely, an interrupt during imports has no effect (once in three runs of the suite; cause unknown).
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _interrupt(folder, moment)
            return
    pytest.fail("three interrupts in a row were discarded")


def _interrupt(tmp_path, moment):
    process = subprocess.Popen(
        [sys.executable, "-m", "m3g", *WORDS, "--loop.epochs", "1000"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while not MOMENTS[moment](tmp_path, process.pid):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.005)
        children = started(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=50)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    finally:
        process.kill()
    advice = "; continue with m3g train --resume run" if moment == "training" else ""
    assert (process.returncode, error) == (130, f"m3g: error: interrupted{advice}\n")
    assert (tmp_path / "run").exists() == (moment == "training")
    end = time.monotonic() + 20  # a child that was just starting exits within a second of its parent
    while any(map(memory, children)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(memory, children))
