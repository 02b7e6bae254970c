"""Tables and curves of `m3g reproduce mismatch`, from finished runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from m3g.evaluation.paired import paired
from m3g.experiments.engine.spec import Result
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import holm_verdicts
from m3g.experiments.output.tables import hours, markdown, percent, write_table

FIRST = 0.15  # fraction of the entries, the least reliable ones, among which swapped entries are counted
TEST_TO_TRAIN = 0.2 / 0.7  # test rows per training row
SCORES = {"recall_at_1": "R@1", "linear_mean": "linear probe"}
EXCLUDED = {"wrong_left_out": "swapped entries excluded", "right_left_out": "correct entries excluded"}


class Arm(NamedTuple):
    """Configuration of a run: the loss, the fraction of swapped entries, and whether `mismatch` is on."""

    loss: str
    share: float
    on: bool


Table = dict[Arm, dict[str, dict[int, float]]]  # arm, metric, seed


class RemainingDrop(NamedTuple):
    """Fraction of the drop in a score that remains with `mismatch`: of the means over the seeds, and for every seed."""

    mean: float
    seeds: list[float]

    def __str__(self) -> str:
        return f"{100 * self.mean:.0f} ({', '.join(f'{100 * seed:.0f}' for seed in self.seeds)})"


Scores = Mapping[int, float]  # by seed


def remaining_drop(clean: Scores, noisy: Scores, detected: Scores) -> RemainingDrop | None:
    """Return (clean - detected) / (clean - noisy) over common seeds; None if the mean of clean - noisy is not positive.

    The scores are those after training on clean rows, on noisy rows, and on noisy rows with `mismatch`.

    Example:
        >>> remaining_drop({0: 0.9, 1: 0.8}, {0: 0.7, 1: 0.7}, {0: 0.85, 1: 0.75}).mean.__round__(3)
        0.333
    """
    seeds = sorted(set(clean) & set(noisy) & set(detected))
    drop = [clean[seed] - noisy[seed] for seed in seeds]
    remaining = [clean[seed] - detected[seed] for seed in seeds]
    if sum(drop) <= 0:
        return None
    by_seed = [part / whole if whole > 0 else float("nan") for part, whole in zip(remaining, drop)]
    return RemainingDrop(sum(remaining) / sum(drop), by_seed)


def by_arm(results: list[Result]) -> Table:
    """Return every metric by configuration and seed."""
    table: Table = {}
    for row in results:
        labels = row["labels"]
        values = table.setdefault(Arm(labels["arm"], labels["share"], labels["mismatch"]), {})
        for name, value in row["metrics"].items():
            values.setdefault(name, {})[labels["seed"]] = value
    return dict(sorted(table.items()))


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md` and the plot; return the text to print."""
    table = by_arm(results)
    parts = [hours(results), "## Detection", _detection(table), "## Effect on accuracy", _cost(table)]
    parts += ["## Clean rows", _clean(table)]
    return f"{write_table(parts, folder)}\n\npicture     {draw(table, folder / 'mismatch')}"


def _detection(table: Table) -> str:
    rows = [["loss", "swapped, %", "seeds", "AUC", f"swaps in the first {FIRST:.0%}, median", *EXCLUDED.values()]]
    for arm, metrics in table.items():
        if arm.on:
            first = list(metrics.get("among_first", {}).values())
            cells = [percent(list(metrics.get(name, {}).values())) for name in ("auc", *EXCLUDED)]
            cells.insert(1, f"{100 * statistics.median(first):.1f}" if first else "—")
            rows.append([arm.loss, f"{100 * arm.share:.0f}", str(len(metrics["recall_at_1"])), *cells])
    return markdown(rows) + "\n\nIn percent, mean ± standard deviation over the seeds."


def _cost(table: Table) -> str:
    titles = [f"{title}{state}" for title in SCORES.values() for state in ("", ", with mismatch", ", remaining drop")]
    rows = [["loss", "swapped, %", *titles]]
    for loss, share in dict.fromkeys((arm.loss, arm.share) for arm in table):
        cells = []
        for name in SCORES:
            clean, noisy, detected = (
                _values(table, Arm(loss, *state), name) for state in ((0.0, False), (share, False), (share, True))
            )
            remaining = remaining_drop(clean, noisy, detected) if share else None
            cells += [
                percent(list(noisy.values())),
                percent(list(detected.values())),
                "—" if remaining is None else str(remaining),
            ]
        rows.append([loss, f"{100 * share:.0f}", *cells])
    note = (
        "Test rows are not swapped. Remaining drop in percent: (clean - with mismatch) / (clean - without) of the "
        "means, and in brackets for every seed."
    )
    return f"{markdown(rows)}\n\n{note}"


def _clean(table: Table) -> str:
    """Return the effect of `mismatch` on clean rows, over the splits of the seeds."""
    gains = {
        (loss, name): paired(
            *(_values(table, Arm(loss, 0.0, on), name) for on in (True, False)), test_to_train=TEST_TO_TRAIN
        )
        for loss in dict.fromkeys(arm.loss for arm in table)
        for name in SCORES
    }
    verdicts = holm_verdicts(gains)
    rows = [["with minus without mismatch", *SCORES.values()]]
    for loss in dict.fromkeys(loss for loss, _ in gains):
        cells = []
        for name in SCORES:
            gain = gains[loss, name]
            interval = f"{100 * gain.mean:+.2f} ± {100 * gain.half_width:.2f}"
            cells.append(f"{interval} {verdicts[loss, name]} ({gain.pairs})" if gain.pairs > 1 else "—")
        rows.append([loss, *cells])
    return markdown(rows) + "\n\nPoints, 95 % interval (Nadeau and Bengio), verdict after Holm's correction, splits."


def _values(table: Mapping[Arm, Mapping[str, dict[int, float]]], arm: Arm, name: str) -> dict[int, float]:
    return table.get(arm, {}).get(name, {})


def draw(table: Table, path: Path) -> Path:
    """Plot AUC, retrieval and probe against the fraction of swapped entries as PNG and SVG; return the PNG's path."""
    shown = {"auc": "detection of swapped entries, AUC", **SCORES}
    figure, axes = figures.panels(len(shown), width=11.0, height=3.4)
    losses = list(dict.fromkeys(arm.loss for arm in table))
    for axis, (name, title) in zip(axes, shown.items()):
        for number, loss in enumerate(losses):
            for on, line in ((True, "-"), (False, "--")):
                points = [(p.share, m[name]) for p, m in table.items() if (p.loss, p.on) == (loss, on) and name in m]
                if points:
                    values = [[100 * value for value in seeds.values()] for _, seeds in points]
                    axis.errorbar(
                        [100 * share for share, _ in points],
                        [statistics.fmean(part) for part in values],
                        [statistics.stdev(part) if len(part) > 1 else 0.0 for part in values],
                        label=f"{loss}{', mismatch' if on else ''}",
                        markersize=4,
                        capsize=2,
                        linestyle=line,
                        **figures.style(number),
                    )
        axis.set(xlabel="swapped entries, %", title=f"{title}, %", xlim=(-2, 100 * max(p.share for p in table) + 2))
        axis.grid(alpha=0.3)
    axes[0].set_ylim(50, 101)  # chance is 50 %
    axes[-1].legend(frameon=False, fontsize=7, handlelength=4)
    return figures.save(figure, path)[0]
