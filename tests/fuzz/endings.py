"""Commands that end early or run concurrently: interrupts, kills, a full disk, simultaneous starts.

Each must print at most one error line and leave complete files, on which the repeated command has the same result.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fuzz.commands import CommandResult, RunningCommand, m3g_command, warm_up
from fuzz.kills import SETTINGS, SMALL
from fuzz.outcome import Outcome, Tried

LIMIT = 180.0
INTERRUPTED = 130
# command: the file in the run that it writes
COMMANDS = {"evaluate": "results.json", "report": "report.html"}
OPTIONS = [*SMALL, *SETTINGS["m3g"]]
SHORT = [*SMALL, "--loss", "infonce-pwe", "--loop.epochs", "1"]
Attempt = Callable[[np.random.Generator, Path, float], Outcome]


def endings(count: int, *, seed: int) -> Iterator[Tried]:
    """Run the given number of trials of each kind in turn, each on a copy of a finished run."""
    warm_up()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        trained = m3g_command(["train", *OPTIONS, "--out", "run"], folder=base)
        seconds = {}
        for command in COMMANDS:
            result = m3g_command([command, "run"], folder=base)
            seconds[command] = result.seconds
            if trained.code != 0 or result.code != 0:
                yield Tried("endings", Outcome("failed", (trained.error + result.error)[-300:]), f"m3g {command}")
                return
        for attempt in range(count):
            kind = list(KINDS)[attempt % len(KINDS)]
            folder = base / "attempt"
            folder.mkdir()
            shutil.copytree(base / "run", folder / "run")
            command, run_attempt = KINDS[kind]
            outcome = run_attempt(rng, folder, seconds.get(command, trained.seconds))
            shutil.rmtree(folder)
            yield Tried(kind, outcome, f"seed {seed}, attempt {attempt}" if outcome.kind == "failed" else "")


def _ended_by(number: signal.Signals, command: str) -> Attempt:
    def attempt(rng: np.random.Generator, folder: Path, seconds: float) -> Outcome:
        after = float(rng.uniform(0, 1.1 * seconds))
        before = _content(folder / "run" / COMMANDS[command])
        result = RunningCommand([command, "run"], folder=folder).end(limit=LIMIT, sent=number, after=after)
        description = f"after {after:.2f} of {seconds:.2f} seconds, exit code {result.code}: {result.error[-300:]}"
        if number == signal.SIGINT and not (result.code == 0 or _in_one_line(result, INTERRUPTED)):
            return Outcome("failed", description)
        if number == signal.SIGKILL and result.code not in (0, -signal.SIGKILL):
            return Outcome("failed", description)
        outcome = _as_before(command, folder, before, description)
        # A process that is killed while it writes leaves its temporary file, which `m3g train --resume` removes.
        if outcome.kind == "held" and number == signal.SIGINT and (left := _leftovers(folder)):
            return Outcome("failed", f"{description}; left behind: {left}")
        return outcome

    return attempt


def _full_disk(command: str) -> Attempt:
    def attempt(rng: np.random.Generator, folder: Path, seconds: float) -> Outcome:
        largest = int(10 ** rng.uniform(3.3, 5.5))
        before = _content(folder / "run" / COMMANDS[command])
        result = m3g_command([command, "run"], folder=folder, limit=LIMIT, largest_file=largest)
        description = f"files of at most {largest} bytes, exit code {result.code}: {result.error[-300:]}"
        if not (result.code == 0 or result.refused):
            return Outcome("failed", description)
        if left := _leftovers(folder):
            return Outcome("failed", f"{description}; left behind: {left}")
        outcome = _as_before(command, folder, before, description)
        return Outcome("refused", result.error.strip()) if outcome.kind == "held" and result.refused else outcome

    return attempt


def _full_disk_while_training(rng: np.random.Generator, folder: Path, seconds: float) -> Outcome:
    """Check that training stops with one line, and that it can be resumed, or restarted if nothing was stored."""
    largest = int(10 ** rng.uniform(3.3, 5.5))
    result = m3g_command(["train", *OPTIONS, "--out", "new"], folder=folder, limit=LIMIT, largest_file=largest)
    description = f"files of at most {largest} bytes, exit code {result.code}: {result.error[-300:]}"
    if not (result.code == 0 or result.refused):
        return Outcome("failed", description)
    if left := _leftovers(folder):
        return Outcome("failed", f"{description}; left behind: {left}")
    if result.code != 0:
        again = ["--resume", "new"] if (folder / "new").exists() else [*OPTIONS, "--out", "new"]
        resumed = m3g_command(["train", *again], folder=folder, limit=LIMIT)
        if resumed.code != 0:
            return Outcome("failed", f"{description}; then m3g train {again[0]}: {resumed.error[-300:]}")
    for name in ("model.safetensors", "metrics.csv"):
        if (folder / "new" / name).read_bytes() != (folder / "run" / name).read_bytes():
            return Outcome("failed", f"{description}; {name} differs from that of a run that was not stopped")
    return Outcome("refused", result.error.strip()) if result.refused else Outcome("held")


def _starts_together(rng: np.random.Generator, folder: Path, seconds: float) -> Outcome:
    """Trainings without --out that start at the same time get separate folders."""
    number = int(rng.integers(2, 5))
    started = [RunningCommand(["train", *SHORT], folder=folder) for _ in range(number)]
    results = [one.end(limit=LIMIT) for one in started]
    for one in results:
        if one.code != 0:
            return Outcome("failed", f"{number} at once, exit code {one.code}: {one.error[-300:]}")
    complete = sorted(path.parent.name for path in (folder / "runs").glob("*/results.json"))
    if complete != [f"infonce-pwe-{i + 1}" for i in range(number)]:
        return Outcome("failed", f"{number} at once wrote {complete}")
    return Outcome("failed", f"left behind: {left}") if (left := _leftovers(folder)) else Outcome("held")


KINDS: dict[str, tuple[str, Attempt]] = {
    **{f"interrupt, {command}": (command, _ended_by(signal.SIGINT, command)) for command in COMMANDS},
    **{f"kill, {command}": (command, _ended_by(signal.SIGKILL, command)) for command in COMMANDS},
    **{f"disk full, {command}": (command, _full_disk(command)) for command in COMMANDS},
    "disk full, train": ("train", _full_disk_while_training),
    "starts together": ("train", _starts_together),
}


def _in_one_line(result: CommandResult, code: int) -> bool:
    return result.code == code and len(result.error.strip().splitlines()) == 1


def _leftovers(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*.tmp"))


def _content(path: Path) -> str:
    """Return the text of a file that a command has written, without durations and times."""
    return re.sub(r'("seconds": )[0-9.e-]+|\d+ ?:\d+(:\d+)?', r"\1", path.read_text(encoding="utf-8"))


def _as_before(command: str, folder: Path, before: str, description: str) -> Outcome:
    """Check that the old or the new file is complete, images can be read, and the repeated command succeeds."""
    path = folder / "run" / COMMANDS[command]
    if _content(path) != before:
        return Outcome("failed", f"{description}; {path.name} is incomplete or changed")
    for picture in (folder / "run" / "plots").glob("[!.]*.png"):
        if not picture.read_bytes().endswith(b"IEND\xaeB`\x82"):
            return Outcome("failed", f"{description}; {picture.name} is incomplete or changed")
    again = m3g_command([command, "run"], folder=folder, limit=LIMIT)
    if again.code != 0:
        return Outcome("failed", f"{description}; then again: {again.error[-300:]}")
    return (
        Outcome("held")
        if _content(path) == before
        else Outcome("failed", f"{description}; then again: other {path.name}")
    )
