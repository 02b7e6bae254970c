"""Ctrl-C has one effect at any time, and prints one line even while several processes start to train."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import m3g
from m3g.cli import launch

WORDS = ["train", "--loop.devices", "2", "--loop.accelerator", "cpu", "--loop.evaluate_every", "0", "--out", "run"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def child_processes(pid):
    """Return the child processes of a process."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children += map(int, task.read_text().split())
    return children


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
    "start of the processes": lambda folder, pid: len(child_processes(pid)) == 2,
    "imports of the processes": lambda folder, pid: (
        len(child_processes(pid)) == 2 and min(map(memory, child_processes(pid))) > 60
    ),
    "training": has_begun,
}


@pytest.fixture(autouse=True)
def interrupts_are_not_ignored():
    """Child processes inherit SIGINT ignored if the tests run in the background (`make test &` in a script)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the moment is read from /proc (Linux)")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="m3g refuses more processes than cores")
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_of_several_processes_prints_one_line(tmp_path, moment):
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
        children = child_processes(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    advice = "; continue with m3g train --resume run" if moment == "training" else ""
    assert (process.returncode, error) == (130, f"m3g: error: interrupted{advice}\n")
    assert (tmp_path / "run").exists() == (moment == "training")
    end = time.monotonic() + 120  # a child that was just starting exits within a second of its parent
    while any(map(memory, children)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(memory, children))


BEGIN = """
import os, signal, sys, time
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # the handler runs between two instructions
        pass
from m3g._interrupts import handle_interrupts, raising_interrupts
handle_interrupts()
"""
WAIT = """
    except KeyboardInterrupt:
        sys.exit("one KeyboardInterrupt")
"""
RAISING = "with raising_interrupts():\n    try:\n"
PROGRAMS = {
    "before a command begins": ("interrupt()", (130, "m3g: error: interrupted")),
    "outside of imports": (f"{RAISING}        interrupt()\n{WAIT}", (1, "one KeyboardInterrupt")),
    "in an import that discards exceptions": (
        f"{RAISING}        import discarding\n        print(discarding.LOADED)\n        time.sleep(600)\n{WAIT}",
        (1, "one KeyboardInterrupt"),
    ),
    "in a destructor, which discards exceptions": (
        "class Destroyed:\n    __del__ = lambda self: interrupt()\n"
        f"{RAISING}        Destroyed()\n        time.sleep(600)\n{WAIT}",
        (1, "one KeyboardInterrupt"),
    ),
    "in an import of a command": (
        f"__name__ = 'm3g.cli.test'\n{RAISING}        import discarding\n{WAIT}",
        (130, "m3g: error: interrupted"),
    ),
    "twice in an import": (f"{RAISING}        import waiting\n{WAIT}", (130, "m3g: error: interrupted")),
    "twice in a process of torchrun": (
        f"os.environ['RANK'] = '1'\n{RAISING}        interrupt()\n"
        "    except KeyboardInterrupt:\n        interrupt()\n        sys.exit('no second one')",
        (1, "no second one"),
    ),
    "if ignored": (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nhandle_interrupts()\ninterrupt()\nsys.exit('still running')",
        (1, "still running"),
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends the process on Windows")
@pytest.mark.parametrize("when", PROGRAMS)
def test_an_interrupt_has_one_effect(tmp_path, when):
    discarding = (
        "from __main__ import interrupt\ntry:\n    interrupt()\nexcept BaseException:\n    pass\nLOADED = True\n"
    )
    (tmp_path / "discarding.py").write_text(discarding)
    (tmp_path / "waiting.py").write_text(
        "from __main__ import interrupt, time\ninterrupt()\ninterrupt()\ntime.sleep(600)\n"
    )
    program, expected = PROGRAMS[when]
    completed = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(Path(m3g.__file__).parents[1]), "."])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (completed.returncode, completed.stderr.strip()) == expected


def test_ignored_signals_do_not_stop_several_processes():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "SIGINT" not in launch._signals()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "SIGINT" in launch._signals()
