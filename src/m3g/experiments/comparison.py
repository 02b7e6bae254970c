"""What a table may claim: paired differences with their intervals, ranks, and what it could have seen at all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Scores = Mapping[Any, float]


class Difference(NamedTuple):
    """Mean of paired differences, half the width of its 95 % interval, the number of pairs, and the smallest true
    difference that so many pairs of this spread show four times out of five.
    """

    mean: float
    half_width: float
    pairs: int
    smallest: float

    @property
    def verdict(self) -> str:
        """`ahead`, `behind`, or `tie` when the interval holds 0."""
        if not abs(self.mean) > self.half_width:
            return "tie"
        return "ahead" if self.mean > 0 else "behind"


def paired(ours: Scores, theirs: Scores) -> Difference:
    """Differences over the settings (seed, split, ...) that both have, by Student's t.

    Example:
        >>> found = paired({0: 0.52, 1: 0.55, 2: 0.50}, {0: 0.50, 1: 0.52, 2: 0.49})
        >>> round(found.mean, 3), found.pairs, found.verdict
        (0.02, 3, 'tie')
    """
    from scipy.stats import t

    values = [ours[key] - theirs[key] for key in ours if key in theirs]
    if not values:
        return Difference(math.nan, math.nan, 0, math.nan)
    if len(values) == 1:
        return Difference(values[0], math.inf, 1, math.inf)
    error = statistics.stdev(values) / math.sqrt(len(values))
    freedom = len(values) - 1
    wide = float(t.ppf(0.975, freedom))
    return Difference(statistics.fmean(values), wide * error, len(values), (wide + float(t.ppf(0.8, freedom))) * error)


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


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean; 0 for one value, which has none."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
