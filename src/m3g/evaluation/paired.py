"""Paired comparison of two arms on the same seeds, splits or rows: mean difference and its 95 % interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

RESAMPLES = 2000
Key = TypeVar("Key", bound=Hashable)  # identifies a pair: a seed, a split, a row, ...
Scores = Mapping[Key, float]


class Difference(NamedTuple):
    """Mean of paired differences.

    Attributes:
        mean: mean difference.
        half_width: half the width of its 95 % interval.
        pairs: number of splits, seeds or rows that are compared.
        p_value: two-sided p-value of the hypothesis of no difference; NaN if it is not computed.
        smallest: smallest true difference that this number of pairs would detect with a power of 80 %.
    """

    mean: float
    half_width: float
    pairs: int
    p_value: float = math.nan
    smallest: float = math.inf

    @property
    def verdict(self) -> str:
        """`ahead`, `behind`, or `tie` if the interval includes 0."""
        if not abs(self.mean) > self.half_width:
            return "tie"
        return "ahead" if self.mean > 0 else "behind"

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ± {100 * self.half_width:.1f}" if self.pairs > 1 else "—"


def paired(
    ours: Scores[Key],
    theirs: Scores[Key],
    *,
    test_to_train: float = 0.0,
    split_of: Callable[[Key], Hashable] = lambda key: key,
) -> Difference:
    r"""Compare two arms on J common seeds or random splits by a paired t-test.

    Random splits of the same objects overlap, so their differences are correlated. The variance of the mean is then
    estimated by :math:`(1/J + n_\text{test}/n_\text{train})\, s^2` instead of :math:`s^2 / J`, with J - 1 degrees of
    freedom, where :math:`s^2` is the variance of the differences (Nadeau and Bengio, 2003).

    Args:
        ours, theirs: scores by key, such as a seed, a split, or a pair (split, setting); keys in both are compared.
        test_to_train: number of test objects per training object of overlapping splits; 0 for independent draws.
        split_of: function that returns the split of a key. The differences of a split are averaged first, because they
            are not independent.

    Example:
        >>> ours, theirs = {0: 0.52, 1: 0.55, 2: 0.50}, {0: 0.50, 1: 0.52, 2: 0.49}
        >>> str(paired(ours, theirs)), str(paired(ours, theirs, test_to_train=1 / 3))
        ('+2.0 ± 2.5', '+2.0 ± 3.5')
    """
    from scipy.stats import t

    by_split: dict[Hashable, list[float]] = {}
    for key in ours:
        if key in theirs:
            by_split.setdefault(split_of(key), []).append(ours[key] - theirs[key])
    values = [statistics.fmean(differences) for differences in by_split.values()]
    if len(values) < 2:
        return Difference(values[0] if values else math.nan, math.inf, len(values), 1.0)
    mean, freedom = statistics.fmean(values), len(values) - 1
    error = statistics.stdev(values) * math.sqrt(1 / len(values) + test_to_train)
    p_value = float(2 * t.sf(abs(mean) / error, freedom)) if error > 0 else float(mean == 0)
    quantile, power_quantile = (float(t.ppf(level, freedom)) for level in (0.975, 0.8))
    smallest = (quantile + power_quantile) * error
    return Difference(mean, quantile * error, len(values), p_value, smallest)


def interval_of_mean(values: Sequence[float], *, test_to_train: float = 0.0) -> float:
    """Return half the width of the 95 % interval of a mean, as in `paired`; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    return paired(
        dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0), test_to_train=test_to_train
    ).half_width


def bootstrap(ours: Scores[Key], theirs: Scores[Key], *, seed: int = 0) -> Difference:
    """Compare two arms on common rows by the bootstrap, with 2000 resamples of the difference of the means.

    If a row of an arm lacks views that the measure requires, the score of this row is NaN, and the row is excluded from
    the mean of this arm. The result is the difference of the two means, even if the arms lack different views.
    `half_width` is the larger distance from the difference to a bound of the 95 % interval, so that the symmetric
    interval contains that interval.

    Example:
        >>> ours, theirs = ({row: float(row % step == 0) for row in range(200)} for step in (2, 4))
        >>> difference = bootstrap(ours, theirs)
        >>> difference.mean, difference.verdict, difference.pairs
        (0.25, 'ahead', 200)
    """
    values = np.array([(ours[row], theirs[row]) for row in ours if row in theirs]).reshape(-1, 2)
    values = values[~np.isnan(values).all(1)]
    if np.isnan(values).all(0).any() or len(values) == 0:
        return Difference(math.nan, math.nan, 0)
    # scipy.stats.bootstrap would draw other resamples from the same seed, and thus change published intervals.
    random = np.random.default_rng(seed)
    present = ~np.isnan(values)
    weighted = np.nan_to_num(values)
    draws = (random.integers(0, len(values), len(values)) for _ in range(RESAMPLES))
    means = np.array([weighted[rows].sum(0) / np.maximum(present[rows].sum(0), 1) for rows in draws])
    mean = float(np.subtract(*np.nanmean(values, 0)))
    low, high = np.quantile(means[:, 0] - means[:, 1], (0.025, 0.975))
    half = float(max(mean - low, high - mean))
    return Difference(mean, half, len(values), smallest=half * (1 + 0.842 / 1.96))  # normal quantiles 0.8 and 0.975
