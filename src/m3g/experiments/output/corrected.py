"""Intervals for overlapping random splits, and Holm's correction over the comparisons of a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from m3g.evaluation.paired import Key, Scores


@dataclass(frozen=True)
class Comparison:
    """A paired difference over splits.

    Attributes:
        mean: mean difference.
        half_width: half the width of its 95 % interval.
        splits: number of splits that both arms have.
        p_value: of the hypothesis of no difference, two-sided.
        smallest: smallest true difference that is detected with a power of 80 %, before Holm's correction.
    """

    mean: float
    half_width: float
    splits: int
    p_value: float
    smallest: float = math.inf

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} ± {100 * self.half_width:.1f}" if self.splits > 1 else "—"


def compare_splits(
    ours: Scores[Key],
    theirs: Scores[Key],
    *,
    test_to_train: float,
    split_of: Callable[[Key], Hashable] = lambda key: key,
) -> Comparison:
    r"""Compare two arms on J random splits of the same objects (Nadeau and Bengio, 2003).

    The splits overlap, so their differences are correlated. The variance of the mean is estimated by
    :math:`(1/J + n_\text{test}/n_\text{train})\, s^2` instead of :math:`s^2 / J`, with J - 1 degrees of freedom.

    Args:
        ours, theirs: scores by split, or by several settings of each split.
        test_to_train: number of test objects per training object; 0 for independent draws.
        split_of: the split of a key. The differences of a split are averaged first, because they are not independent.

    Example:
        >>> ours, theirs = {0: 0.52, 1: 0.55, 2: 0.50}, {0: 0.50, 1: 0.52, 2: 0.49}
        >>> str(compare_splits(ours, theirs, test_to_train=0.0)), str(compare_splits(ours, theirs, test_to_train=1 / 3))
        ('+2.0 ± 2.5', '+2.0 ± 3.5')
    """
    from scipy.stats import t

    by_split: dict[Hashable, list[float]] = {}
    for key in ours:
        if key in theirs:
            by_split.setdefault(split_of(key), []).append(ours[key] - theirs[key])
    values = [statistics.fmean(differences) for differences in by_split.values()]
    if len(values) < 2:
        return Comparison(values[0] if values else math.nan, math.inf, len(values), 1.0)
    mean, freedom = statistics.fmean(values), len(values) - 1
    error = statistics.stdev(values) * math.sqrt(1 / len(values) + test_to_train)
    p_value = float(2 * t.sf(abs(mean) / error, freedom)) if error > 0 else float(mean == 0)
    wide, power = (float(t.ppf(level, freedom)) for level in (0.975, 0.8))
    return Comparison(mean, wide * error, len(values), p_value, (wide + power) * error)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return adjusted p-values of several hypotheses (Holm, 1979), which bound the family-wise error.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def verdict(comparison: Comparison, adjusted: float, *, level: float = 0.05) -> str:
    """Return `ahead` or `behind` if the adjusted p-value is below the level, else `tie`."""
    if comparison.splits < 2 or not adjusted < level:
        return "tie"
    return "ahead" if comparison.mean > 0 else "behind"


def mean_interval(values: Sequence[float], *, test_to_train: float) -> float:
    """Return half the width of the 95 % interval of a mean over overlapping splits."""
    return compare_splits(
        dict(enumerate(values)), dict.fromkeys(range(len(values)), 0.0), test_to_train=test_to_train
    ).half_width
