"""Two arms of an experiment measured on the same settings or rows: the mean of their differences and its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

RESAMPLES = 2000
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


def interval_of_mean(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of a mean, by Student's t; 0 for one value, which has none."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def bootstrap(ours: Scores, theirs: Scores, *, seed: int = 0) -> Difference:
    """As `paired`, over the rows that both have: the 95 % interval is that of the means of resampled differences.

    Half the width is the larger of its two sides, so that the interval is never told too narrow.

    Example:
        >>> ours, theirs = ({row: float(row % step == 0) for row in range(200)} for step in (2, 4))
        >>> found = bootstrap(ours, theirs)
        >>> found.mean, found.verdict, found.pairs
        (0.25, 'ahead', 200)
    """
    values = np.array([ours[row] - theirs[row] for row in ours if row in theirs])
    values = values[~np.isnan(values)]  # a row that lacks the views that a measure needs
    if len(values) == 0:
        return Difference(math.nan, math.nan, 0, math.nan)
    # not scipy.stats.bootstrap, which draws other resamples from the same seed: printed intervals would change
    random = np.random.default_rng(seed)
    means = np.array([values[random.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)])
    middle = float(values.mean())
    half = float(max(middle - np.quantile(means, 0.025), np.quantile(means, 0.975) - middle))
    return Difference(middle, half, len(values), half * (1 + 0.842 / 1.96))
