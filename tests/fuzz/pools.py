"""`m3g reproduce --jobs 2` with randomly killed processes gives the results of an uninterrupted one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fuzz.outcome import Outcome, Tried

COMMAND = ["-m", "m3g", "reproduce", "iterations", "--seeds", "1", "--out", "out"]
LIMIT = 240.0


def pools(count: int, *, seed: int) -> Iterator[Tried]:
    """Each trial kills workers, which are replaced, and sometimes the command, which is restarted."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        uninterrupted = base / "whole"
        uninterrupted.mkdir()
        code, error = _end(_start(uninterrupted))
        if code != 0:
            yield Tried("kill, reproduce", Outcome("failed", error), "m3g reproduce iterations")
            return
        for attempt in range(count):
            folder = base / "attempt"
            folder.mkdir()
            outcome = _killed(rng, folder, _results(uninterrupted))
            shutil.rmtree(folder)
            description = f"seed {seed}, attempt {attempt}" if outcome.kind == "failed" else ""
            yield Tried("kill, reproduce", outcome, description)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(folder / "error", "wb") as error:
        return subprocess.Popen(
            [sys.executable, *COMMAND, "--jobs", "2"],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=error,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Return exit code and the end of the output; at the time limit, kill the command and its workers."""
    try:
        return process.wait(LIMIT), ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait(), f"still running after {LIMIT:g} seconds"


def _killed(rng: np.random.Generator, folder: Path, expected: dict[str, object]) -> Outcome:
    process = _start(folder)
    _kill_workers(rng, process, int(rng.integers(1, 4)))
    if rng.random() < 0.5:
        process.kill()  # its workers continue for a while, concurrently with those of the next command
        process.wait()
        process = _start(folder)
    code, problem = _end(process)
    if code != 0:
        return Outcome("failed", problem or f"exit code {code}: {(folder / 'error').read_text()[-300:]}")
    if _results(folder) != expected:
        return Outcome("failed", "the results differ from those of an uninterrupted pool")
    left = [str(path.relative_to(folder)) for path in folder.rglob(".*.tmp")]
    return Outcome("failed", f"left behind: {left}") if left else Outcome("held")


def _kill_workers(rng: np.random.Generator, process: subprocess.Popen[bytes], number: int) -> None:
    for _ in range(number):
        deadline = time.monotonic() + float(rng.uniform(0.5, 12))
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
        if workers := _children(process.pid):
            try:
                os.kill(int(rng.choice(workers)), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has just exited


def _children(pid: int) -> list[int]:
    """Return the workers of the process, without the resource tracker of Python."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return [child for child in children if "spawn_main" in _words(child)]


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _results(folder: Path) -> dict[str, object]:
    """Return the results of the runs by id."""
    lines = (folder / "out" / "results.jsonl").read_text().splitlines()
    return {row["id"]: row["metrics"] for row in map(json.loads, lines)}
