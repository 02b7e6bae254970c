"""Paired differences with their intervals and detectable sizes, and average ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from m3g.evaluation.paired import Difference, Key, Scores, interval_of_mean, paired
from m3g.experiments.output.tables import markdown

interval = interval_of_mean
__all__ = [
    "Difference",
    "Scores",
    "average_rank",
    "control_table",
    "difference_rows",
    "interval",
    "paired",
    "points",
    "within_splits",
]


def average_rank(scores: Mapping[str, Scores[Key]]) -> dict[str, float]:
    """Return the mean rank of each arm (1 is best, ties share) over common settings.

    Example:
        >>> average_rank({"a": {0: 0.9, 1: 0.5}, "b": {0: 0.8, 1: 0.6}, "c": {0: 0.1, 1: 0.1}})
        {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    from scipy.stats import rankdata

    shared = set.intersection(*(set(values) for values in scores.values())) if scores else set()
    if not shared:
        return {}
    ranks = rankdata([[-values[key] for key in shared] for values in scores.values()], axis=0)
    return dict(zip(scores, ranks.mean(1).tolist()))


def within_splits(scores: Mapping[str, Scores[Key]]) -> dict[str, tuple[float, float]]:
    """Return per arm the mean in percent, and half the width of its 95 % interval after subtracting split means.

    The difficulty of a seed or split affects all arms alike, and comparisons should show the rest (Cousineau's
    intervals, with Morey's correction). If arms share fewer than two settings, intervals are those of each mean.

    Example:
        >>> intervals = within_splits({"a": {0: 0.5, 1: 0.7}, "b": {0: 0.4, 1: 0.6}})
        >>> {arm: (round(mean), round(width, 6)) for arm, (mean, width) in intervals.items()}
        {'a': (60, 0.0), 'b': (50, 0.0)}
    """
    shared = set.intersection(*(set(values) for values in scores.values())) if scores else set()
    means = {arm: 100 * statistics.fmean(values.values()) for arm, values in scores.items()}
    if len(scores) < 2 or len(shared) < 2:
        return {arm: (means[arm], 100 * interval(list(values.values()))) for arm, values in scores.items()}
    of_split = {key: statistics.fmean(values[key] for values in scores.values()) for key in shared}
    correction = math.sqrt(len(scores) / (len(scores) - 1))
    return {
        arm: (means[arm], 100 * correction * interval([values[key] - of_split[key] for key in shared]))
        for arm, values in scores.items()
    }


def difference_rows(scores: Mapping[str, Scores[Key]], arm: str) -> list[list[str]]:
    """Return a table of one arm against every other, in percent."""
    rows = [[f"{arm} minus", "difference", "95 % interval", "pairs", "smallest detectable", ""]]
    for other, values in scores.items():
        if other == arm:
            continue
        difference = paired(scores[arm], values)
        if difference.pairs < 2:
            continue
        low, high = (100 * (difference.mean + sign * difference.half_width) for sign in (-1, 1))
        rows.append(
            [
                other,
                f"{100 * difference.mean:+.2f}",
                f"{low:+.2f} to {high:+.2f}",
                str(difference.pairs),
                f"{100 * difference.smallest:.2f}",
                difference.verdict,
            ]
        )
    return rows


def control_table(main: Mapping[str, Scores[Key]], controls: Mapping[str, Mapping[str, Scores[Key]]]) -> str:
    """Compare the arms of each control with the same arms without it, over common settings, in percent."""
    rows = [["control", "method", "accuracy %", "without it %", "change", "m3g minus method, with it", "pairs"]]
    for control, arms in controls.items():
        for arm, values in arms.items():
            keys = [key for key in values if key in main.get(arm, {})]
            if keys:
                pair = [100 * statistics.fmean(part[key] for key in keys) for part in (values, main[arm])]
                # If M3G has no such control ("no teacher, both directions"), use the control that it extends ("no
                # teacher"), or else the main table.
                wider = controls.get(control.split(", ")[0], {})
                ours = arms.get("m3g") or wider.get("m3g") or main.get("m3g", {})
                cells = [points(paired(values, main[arm])), "—" if arm == "m3g" else points(paired(ours, values))]
                rows.append([control, arm, f"{pair[0]:.1f}", f"{pair[1]:.1f}", *cells, str(len(keys))])
    return markdown(rows) if len(rows) > 1 else ""


def points(difference: Difference) -> str:
    """Format a paired difference in percentage points, with its 95 % interval; a dash for fewer than two pairs."""
    if difference.pairs < 2:
        return "—"
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half_width:.1f} {difference.verdict}"
