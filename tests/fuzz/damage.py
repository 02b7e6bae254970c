"""Random damage to every file of a finished run: it is reported in one line, or has no effect."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fuzz.commands import m3g_command, warm_up
from fuzz.kills import SETTINGS, SMALL
from fuzz.outcome import Outcome, Tried

FILES = ("model.safetensors", "model.json", "config.yaml", "metrics.csv", "results.json", "checkpoints/last.ckpt")
Change = Callable[[bytes, np.random.Generator], bytes]


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    position = int(rng.integers(len(content)))
    return content[:position] + bytes([content[position] ^ (1 << int(rng.integers(8)))]) + content[position + 1 :]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def _zeros(content: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(content)))
    stop = min(len(content), start + int(rng.integers(1, 200)))
    return content[:start] + bytes(stop - start) + content[stop:]


def _swapped(content: bytes, rng: np.random.Generator) -> bytes:
    position = int(rng.integers(len(content)))
    return content[position:] + content[:position]


def _longer(content: bytes, rng: np.random.Generator) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 100)))


CHANGES: dict[str, Change] = {
    "one bit": _flip,
    "cut": _cut,
    "zeros": _zeros,
    "swapped": _swapped,
    "longer": _longer,
    "empty": lambda content, rng: b"",
}


def damage(count: int, *, seed: int) -> Iterator[Tried]:
    """Each trial changes one file, then embeds the data with the run."""
    warm_up()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = folder / "run"
        result = m3g_command(["train", *SMALL, *SETTINGS["m3g"], "--out", str(run)], folder=folder)
        expected, problem = _embedded(run, folder)
        if result.code != 0 or expected is None:
            yield Tried("damage", Outcome("failed", (result.error + problem)[-300:]), "m3g train and m3g embed")
            return
        for attempt in range(count):
            file = FILES[attempt % len(FILES)]
            change = str(rng.choice(list(CHANGES)))
            copy = folder / "copy"
            shutil.copytree(run, copy)
            target = copy / file
            target.write_bytes(CHANGES[change](target.read_bytes(), rng))
            outcome = _outcome(copy, folder, expected)
            shutil.rmtree(copy)
            description = f"seed {seed}, attempt {attempt}: {change} in {file}, then m3g embed"
            yield Tried(f"damage, {file}", outcome, description if outcome.kind == "failed" else "")


def _embedded(run: Path, folder: Path) -> tuple[dict[str, np.ndarray] | None, str]:
    """Return the arrays that `m3g embed` writes, or None, and the output."""
    out = folder / "embedded.npz"
    out.unlink(missing_ok=True)
    result = m3g_command(["embed", str(run), "--out", str(out)], folder=folder)
    if result.code == 0:
        with np.load(out) as content:
            return dict(content), ""
    return None, f"exit code {result.code}: {result.error}" if not result.refused else ""


def _outcome(run: Path, folder: Path, expected: dict[str, np.ndarray]) -> Outcome:
    embedded, problem = _embedded(run, folder)
    if problem:
        return Outcome("failed", problem[-300:])
    if embedded is None:
        return Outcome("refused")
    same = embedded.keys() == expected.keys() and all(np.array_equal(embedded[key], expected[key]) for key in expected)
    return Outcome("held") if same else Outcome("failed", "other embeddings, exit code 0")
