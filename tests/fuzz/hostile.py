"""Malicious input: an error of one line with exit code 2, within seconds, without access outside the folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fuzz.commands import CommandResult, m3g_command, warm_up
from fuzz.files import every
from fuzz.kills import SETTINGS, SMALL
from fuzz.outcome import Outcome, Tried

SECONDS = 20.0
Prepared = tuple[list[str], Callable[[CommandResult], str]]


def _no_check(result: CommandResult) -> str:
    return ""


def _views(folder: Path) -> list[str]:
    for name in ("a", "b"):
        np.save(folder / f"{name}.npy", np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32))
    return ["--views", "a.npy", "b.npy"]


def _class_in_a_solver(folder: Path) -> Prepared:
    (folder / "evil.py").write_text("open('imported', 'w').close()\nclass M: ...\n")
    (folder / "c.yaml").write_text("loss_options: {solver: {class_path: evil.M}}\n")
    return ["train", "--config", "c.yaml"], lambda _: "the class was imported" if (folder / "imported").exists() else ""


def _many_columns(folder: Path) -> Prepared:
    _views(folder)
    names = ",".join(f"c{i}" for i in range(300_000))
    (folder / "wide.csv").write_text(names + "\n" + ",".join(["1"] * 300_000) + "\n")
    return ["train", "--views", "a.npy", "wide.csv"], _no_check


def _many_workers(folder: Path) -> Prepared:
    return ["train", *_views(folder), "--data_options.num_workers", "10000"], _no_check


def _nested_yaml(folder: Path) -> Prepared:
    (folder / "deep.yaml").write_text("loss_options: " + "[" * 20_000 + "]" * 20_000)
    return ["train", "--config", "deep.yaml"], _no_check


def _wide_encoder(folder: Path) -> Prepared:
    return ["train", *_views(folder), "--encoder_options.width", "1000000"], _no_check


def _changed_run(file: str, change: Callable[[str], str]) -> Callable[[Path], Prepared]:
    def prepare(folder: Path) -> Prepared:
        path = folder / "run" / file
        path.write_text(change(path.read_text()))
        return ["evaluate", "run"], _no_check

    return prepare


def _nested_json(text: str) -> str:
    return "[" * 100_000 + "]" * 100_000


def _huge_shape(text: str) -> str:
    return text.replace('"view_shapes": [', '"view_shapes": [[1000000000], ')


def _linked(kind: str, command: list[str]) -> Callable[[Path], Prepared]:
    """Replace a folder or file of the run by a link to an outside location, whose file must not change."""

    def prepare(folder: Path) -> Prepared:
        outside = folder / "outside"
        outside.mkdir()
        (outside / ".x.tmp").write_text("mine")
        (outside / "last.ckpt").write_text("mine")
        inside = folder / "run" / kind
        if inside.is_dir():
            shutil.rmtree(inside)
            inside.symlink_to(outside)
        else:
            inside.unlink(missing_ok=True)
            inside.symlink_to(outside / "last.ckpt")
        before = {path.name: path.read_bytes() for path in outside.iterdir()}

        def untouched(result: CommandResult) -> str:
            after = {path.name: path.read_bytes() for path in outside.iterdir()}
            return "" if before == after else "files outside the run were touched"

        return command, untouched

    return prepare


def _extra_cell(folder: Path) -> Prepared:
    path = folder / "run" / "metrics.csv"
    lines = path.read_text().splitlines()
    lines[2] += ",7"
    path.write_text("\n".join(lines) + "\n")
    (folder / "run" / "model.safetensors").unlink()
    return ["train", "--resume", "run"], _no_check


def _read_only(folder: Path) -> Prepared:
    if os.geteuid() == 0:  # root may write everywhere except in /proc
        return ["train", *_views(folder), "--out", "/proc/run"], _no_check
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    return ["train", *_views(folder), "--out", "closed/run"], _no_check


def _file(make: Callable[[Path], list[str]]) -> Callable[[Path], Prepared]:
    """Train on a malicious file; a remaining run must be resumable (images are read during training)."""

    def prepare(folder: Path) -> Prepared:
        words = make(folder)

        def check_remaining_runs(result: CommandResult) -> str:
            left = [run for run in folder.glob("runs/*") if not (run / "checkpoints" / "last.ckpt").exists()]
            return f"left behind: {left}" if left else ""

        return words, check_remaining_runs

    return prepare


CASES: dict[str, Callable[[Path], Prepared]] = {
    "a class in the options of a solver": _class_in_a_solver,
    "300 000 columns": _many_columns,
    "10 000 workers": _many_workers,
    "deeply nested YAML": _nested_yaml,
    "an encoder of a million features": _wide_encoder,
    "deeply nested JSON": _changed_run("model.json", _nested_json),
    "a view of 10^9 numbers": _changed_run("model.json", _huge_shape),
    "checkpoints that point outside": _linked("checkpoints", ["train", "--resume", "run"]),
    "results that point outside": _linked("results.json", ["evaluate", "run"]),
    "an extra cell in metrics.csv": _extra_cell,
    "a folder that cannot be written": _read_only,
    **{case: _file(make) for case, make in every().items()},
}
# Inputs that may also be accepted, provided that nothing outside changes and nothing hangs.
HARMLESS = {"results that point outside", "an extra cell in metrics.csv", "300 000 columns"}


def hostile() -> Iterator[Tried]:
    """Run every case once, each in a separate folder with a finished run."""
    warm_up()
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        trained = m3g_command(["train", *SMALL, *SETTINGS["m3g"], "--out", "run"], folder=base)
        if trained.code != 0:
            yield Tried("hostile", Outcome("failed", trained.error[-300:]), "m3g train")
            return
        for case, prepare in CASES.items():
            folder = base / "case"
            folder.mkdir()
            shutil.copytree(base / "run", folder / "run")
            command, check = prepare(folder)
            result = m3g_command(command, folder=folder, limit=SECONDS)
            outcome = _outcome(result, check(result), case in HARMLESS)
            yield Tried("hostile", outcome, f"{case}: m3g {' '.join(command)}" if outcome.kind == "failed" else "")
            shutil.rmtree(folder)


def _outcome(result: CommandResult, problem: str, harmless: bool) -> Outcome:
    if problem:
        return Outcome("failed", problem)
    if result.seconds >= SECONDS:
        return Outcome("failed", f"still running after {SECONDS:g} seconds")
    if result.refused:
        return Outcome("refused", result.error.strip())
    if harmless and result.code == 0:
        return Outcome("held")
    return Outcome("failed", f"exit code {result.code}: {result.error[-300:]}")
