"""Trainings that are killed at random times and resumed must end with the same bytes as an uninterrupted one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fuzz.commands import m3g_command, warm_up
from fuzz.outcome import Outcome, Tried

LAST = ["--loop.patience", "0"]  # the last network is compared; with patience, the stored one may be the initial one
SETTINGS = {
    "infonce, teacher": ["--loss", "infonce-pwe", "--teacher.enabled", "true", "--heads.predictor", "true", *LAST],
    "m3g": ["--loss", "m3g", "--views_per_step", "3"],
    "vicreg, accumulate": ["--loss", "vicreg", "--loop.accumulate", "2", *LAST],
}
SMALL = [
    *("--data_options.batch_size", "200", "--data_options.views", "[fourier, zernike, morphology]"),
    *("--encoder_options.width", "16", "--encoder_options.dropout", "0.2"),
    *("--heads.embedding_size", "8", "--heads.hidden", "16"),
    *("--loop.epochs", "6", "--loop.checkpoint_every", "3", "--loop.evaluate_every", "0", "--seed", "1"),
]
SAME = ("model.safetensors", "metrics.csv", "config.yaml")


def kills(count: int, *, seed: int) -> Iterator[Tried]:
    """Each trial kills one run once or twice."""
    warm_up()
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uninterrupted = {}
        for setting, options in SETTINGS.items():
            target = f"whole {setting}".replace(" ", "-").replace(",", "")
            result = m3g_command(["train", *SMALL, *options, "--out", target], folder=folder)
            if result.code != 0:
                yield Tried("kill", Outcome("failed", f"train {setting}: {result.error[-300:]}"), " ".join(options))
                return
            uninterrupted[setting] = (folder / target, result.seconds)
        for attempt in range(count):
            setting = list(SETTINGS)[attempt % len(SETTINGS)]
            path, seconds = uninterrupted[setting]
            moments = sorted(rng.uniform(0, 1.1 * seconds, size=int(rng.integers(1, 3))).tolist())
            outcome = _kill(SETTINGS[setting], path, moments, folder)
            description = (
                f"m3g train {' '.join(SMALL + SETTINGS[setting])}, killed after {moments} of {seconds:.2f} seconds"
            )
            yield Tried(f"kill, {setting}", outcome, description if outcome.kind == "failed" else "")


def _kill(options: list[str], uninterrupted: Path, moments: list[float], folder: Path) -> Outcome:
    target = folder / "killed"
    start = ["train", *SMALL, *options, "--out", str(target)]
    resume = ["train", "--resume", str(target)]
    try:
        for moment in moments:
            has_checkpoint = (target / "checkpoints" / "last.ckpt").exists()
            m3g_command(resume if has_checkpoint else start, folder=folder, kill_after=moment)
        if not target.exists():
            return _left_behind(folder) or Outcome("held", "killed before the folder was made")
        if (target / "model.safetensors").exists():
            return _compare(uninterrupted, target)
        result = m3g_command(resume, folder=folder)
        if result.refused and not (target / "checkpoints" / "last.ckpt").exists():
            # Killed before the first checkpoint: the command reports that there is nothing to resume.
            return Outcome("refused", result.error.strip())
        if result.code != 0:
            return Outcome("failed", f"resume exited with {result.code}: {result.error[-300:]}")
        return _compare(uninterrupted, target)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _compare(uninterrupted: Path, target: Path) -> Outcome:
    for name in SAME:
        if (uninterrupted / name).read_bytes() != (target / name).read_bytes():
            return Outcome("failed", f"{name} differs from that of a run that was not killed")
    return Outcome("held")


def _left_behind(folder: Path) -> Outcome | None:
    left = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return Outcome("failed", f"left behind: {left}") if left else None
