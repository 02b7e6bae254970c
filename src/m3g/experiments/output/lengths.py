"""Score on validation rows against the number of training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from m3g.experiments.engine.spec import Result, Settings
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import lines
from m3g.experiments.output.tables import markdown, percent


def length_table(
    results: Sequence[Result],
    same: Callable[[Result], object],
    path: Path,
    *,
    test_to_train: float,
    main_stage: str = "test",
) -> list[str]:
    """Return a table of scores by number of steps and the link to its figure, which is written to `path`.

    Table and figure contain the runs of stage `length` and, for comparison, the runs of stage `main_stage` that have
    the same arm, seed and `same(run)` as one of the former. The list is empty if there are no runs of stage `length`.
    """
    other_lengths = [row for row in results if row["labels"]["stage"] == "length"]
    keys = {(row["labels"]["arm"], row["labels"]["seed"], same(row)) for row in other_lengths}
    main = [
        row
        for row in results
        if row["labels"]["stage"] == main_stage and (row["labels"]["arm"], row["labels"]["seed"], same(row)) in keys
    ]
    if not other_lengths:
        return []
    arms: dict[str, dict[tuple[int, int], float]] = {}  # arm, (steps, seed)
    for row in (*other_lengths, *main):
        steps = _steps(row["settings"]["config"])
        arms.setdefault(row["labels"]["arm"], {})[steps, row["labels"]["seed"]] = row["metrics"]["validation"]
    lengths = sorted({steps for values in arms.values() for steps, _ in values})
    rows = [["validation %, by steps", *map(str, lengths)]]
    for arm, values in arms.items():
        rows.append([arm, *(percent([v for (steps, _), v in values.items() if steps == x]) for x in lengths)])
    curves = lines(arms, test_to_train=test_to_train)
    figures.curves(curves, path, xlabel="steps", ylabel="validation, %", logarithmic=True)
    return [markdown(rows), f"![Score on validation rows against the number of steps]({path.name}.png)"]


def _steps(config: Settings) -> int:
    """Return the number of steps of a run, which is set by `max_steps` or by the points of its single epoch."""
    options = config["data_options"]
    return int(config["loop"].get("max_steps") or options["points_per_epoch"] // options["batch_size"])
