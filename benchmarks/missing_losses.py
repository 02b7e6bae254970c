"""Losses with half of the training entries missing: `python -m benchmarks.missing_losses --data FOLDER`.

FOLDER is that of `m3g reproduce views`. Every loss has its default temperature and treatment of missing entries.
Results are stored one by one, so that an interrupted run can be continued. Writes
benchmarks/results/missing_losses.{json,md}.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import m3g
from benchmarks.small_trainings import MEASURES, PROBLEMS, command, store, stored, train

LOSSES, SEEDS, MISSING = ("m3g", "m3g-pairs", "infonce-pwe"), (0, 1), 0.5


def run(source: Path, results: Path) -> None:
    path = results / "missing_losses.json"
    scores = stored(path)
    for problem, seed, name in itertools.product(PROBLEMS, SEEDS, LOSSES):
        key = f"{problem.name}|{name}|{seed}"
        if key not in scores:
            loss = m3g.losses.build(name)
            scores[key] = train(
                problem,
                lambda points, mask, loss=loss: loss(points, mask=mask),
                source=source,
                seed=seed,
                missing=MISSING,
            )
            print(key, " ".join(f"{value:.1f}" for value in scores[key].values()), flush=True)
            store(path, scores)
    (results / "missing_losses.md").write_text(table(scores))


def table(scores: dict[str, dict[str, float]]) -> str:
    """Return the means over seeds, one row per set."""
    lines = [
        f"{' / '.join(MEASURES)} in % with {MISSING:.0%} of the training entries missing, means of two seeds",
        "",
        "| set | " + " | ".join(f"`{name}`" for name in LOSSES) + " |",
        "| --- " * (len(LOSSES) + 1) + "|",
    ]
    for problem in PROBLEMS:
        cells = []
        for name in LOSSES:
            runs = [scores[f"{problem.name}|{name}|{seed}"] for seed in SEEDS]
            cells.append(" / ".join(f"{statistics.fmean(run[measure] for run in runs):.1f}" for measure in MEASURES))
        lines.append(f"| {problem.name} (k = {problem.k}) | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command("missing_losses", __doc__.split("\n\n")[0], run)
