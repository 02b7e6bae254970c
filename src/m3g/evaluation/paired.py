"""Paired comparison of two arms on the same settings or rows: mean difference and its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

RESAMPLES = 2000
Key = TypeVar("Key", bound=Hashable)  # what identifies a pair: a seed, a split, a row, ...
Scores = Mapping[Key, float]


class Difference(NamedTuple):
    """Mean of paired differences, half the width of its 95 % interval, the number of pairs, and the smallest true
    difference that this number of pairs detects with a power of 80 %.
    """

    mean: float
    half_width: float
    pairs: int
    smallest: float

    @property
    def verdict(self) -> str:
        """`ahead`, `behind`, or `tie` if the interval includes 0."""
        if not abs(self.mean) > self.half_width:
            return "tie"
        return "ahead" if self.mean > 0 else "behind"


def paired(ours: Scores[Key], theirs: Scores[Key]) -> Difference:
    """Compare common settings (seed, split, ...) by Student's t.

    Example:
        >>> difference = paired({0: 0.52, 1: 0.55, 2: 0.50}, {0: 0.50, 1: 0.52, 2: 0.49})
        >>> round(difference.mean, 3), difference.pairs, difference.verdict
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
    """Return half the width of the 95 % interval of a mean, by Student's t; 0 for a single value."""
    from scipy.stats import t

    if len(values) < 2:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def bootstrap(ours: Scores[Key], theirs: Scores[Key], *, seed: int = 0) -> Difference:
    """Compare common rows: like `paired`, with the 95 % interval of the means of resampled differences.

    Half the width is the larger of the two sides, so that the reported interval is never too narrow.

    Example:
        >>> ours, theirs = ({row: float(row % step == 0) for row in range(200)} for step in (2, 4))
        >>> difference = bootstrap(ours, theirs)
        >>> difference.mean, difference.verdict, difference.pairs
        (0.25, 'ahead', 200)
    """
    values = np.array([ours[row] - theirs[row] for row in ours if row in theirs])
    values = values[~np.isnan(values)]  # rows without the views that a measure requires
    if len(values) == 0:
        return Difference(math.nan, math.nan, 0, math.nan)
    # scipy.stats.bootstrap draws other resamples from the same seed, which would change printed intervals.
    random = np.random.default_rng(seed)
    means = np.array([values[random.integers(0, len(values), len(values))].mean() for _ in range(RESAMPLES)])
    middle = float(values.mean())
    half = float(max(middle - np.quantile(means, 0.025), np.quantile(means, 0.975) - middle))
    return Difference(middle, half, len(values), half * (1 + 0.842 / 1.96))
