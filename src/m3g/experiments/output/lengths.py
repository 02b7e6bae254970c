"""Score on validation rows against the number of training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from m3g.experiments.engine.spec import Result, Settings
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import within_splits
from m3g.experiments.output.tables import markdown, percent


def length_table(
    results: Sequence[Result], same: Callable[[Result], object], path: Path, *, test_to_train: float
) -> list[str]:
    """Return a table and a picture of the runs of stage `length`, with the runs of the usual length.

    Runs of usual length have the stage `test` and the same arm, seed and value of `same`.
    """
    others = [row for row in results if row["labels"]["stage"] == "length"]
    shown = {(row["labels"]["arm"], row["labels"]["seed"], same(row)) for row in others}
    usual = [
        row
        for row in results
        if row["labels"]["stage"] == "test" and (row["labels"]["arm"], row["labels"]["seed"], same(row)) in shown
    ]
    curves: dict[int, dict[str, dict[int, float]]] = {}  # steps, arm, seed
    for row in (*others, *usual):
        steps = _steps(row["settings"]["config"])
        by_seed = curves.setdefault(steps, {}).setdefault(row["labels"]["arm"], {})
        by_seed[row["labels"]["seed"]] = row["metrics"]["validation"]
    if not others:
        return []
    arms = list(dict.fromkeys(row["labels"]["arm"] for row in others))
    rows = [["validation %, by steps", *(str(steps) for steps in sorted(curves))]]
    lines: dict[str, dict[int, tuple[float, float]]] = {arm: {} for arm in arms}
    for steps, by_arm in sorted(curves.items()):
        for arm, point in within_splits(by_arm, test_to_train=test_to_train).items():
            lines[arm][steps] = point
    for arm in arms:
        rows.append([arm, *(percent(list(curves[steps].get(arm, {}).values())) for steps in sorted(curves))])
    figures.curves(lines, path, xlabel="steps", ylabel="validation, %", logarithmic=True)
    return [markdown(rows), f"![Score on validation rows against the number of steps]({path.name}.png)"]


def _steps(config: Settings) -> int:
    """Return the number of steps, given directly or by the points of one epoch."""
    options = config["data_options"]
    return int(config["loop"].get("max_steps") or options["points_per_epoch"] // options["batch_size"])
