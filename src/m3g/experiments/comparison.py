"""What a table may claim: paired differences with their intervals, ranks, and what it could have seen at all."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from m3g.evaluation.paired import Difference, Scores, interval_of_mean, paired

interval = interval_of_mean
__all__ = ["Difference", "Scores", "average_rank", "difference_rows", "interval", "paired"]


def average_rank(scores: Mapping[str, Scores]) -> dict[str, float]:
    """Mean rank of each arm (1 is best, equals share) over the settings that all arms have.

    Example:
        >>> average_rank({"a": {0: 0.9, 1: 0.5}, "b": {0: 0.8, 1: 0.6}, "c": {0: 0.1, 1: 0.1}})
        {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    if not scores:
        return {}
    shared = set.intersection(*(set(values) for values in scores.values()))
    ranks: dict[str, list[float]] = {arm: [] for arm in scores}
    for key in shared:
        column = {arm: values[key] for arm, values in scores.items()}
        for arm, value in column.items():
            better = sum(other > value for other in column.values())
            equal = sum(other == value for other in column.values())
            ranks[arm].append(better + (equal + 1) / 2)
    return {arm: statistics.fmean(values) for arm, values in ranks.items() if values}


def difference_rows(scores: Mapping[str, Scores], arm: str) -> list[list[str]]:
    """A table of one arm against every other, in percent."""
    rows = [[f"{arm} minus", "difference", "95 % interval", "pairs", "smallest visible", ""]]
    for other, values in scores.items():
        if other == arm:
            continue
        found = paired(scores[arm], values)
        if found.pairs < 2:
            continue
        low, high = (100 * (found.mean + sign * found.half_width) for sign in (-1, 1))
        rows.append(
            [
                other,
                f"{100 * found.mean:+.2f}",
                f"{low:+.2f} to {high:+.2f}",
                str(found.pairs),
                f"{100 * found.smallest:.2f}",
                found.verdict,
            ]
        )
    return rows
