"""Average ranks of methods over data sets, Friedman's test, and Nemenyi's critical difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from m3g.evaluation.paired import Key, Scores
from m3g.experiments.output.comparison import average_rank


class Ranks(NamedTuple):
    """Average ranks (1 is best) over common data sets.

    Attributes:
        ranks: by arm, the best first.
        sets: number of data sets.
        p: p-value of Friedman's test.
        critical: Nemenyi's critical difference at 5 %.
        groups: maximal groups of neighbours whose ranks do not differ significantly.
    """

    ranks: dict[str, float]
    sets: int
    p: float
    critical: float
    groups: list[list[str]]


def ranked(scores: Mapping[str, Scores[Key]]) -> Ranks | None:
    """Return the ranks of arms by their scores per data set.

    The result is None for fewer than three arms or fewer than two common data sets.

    Example:
        >>> ranks = ranked({arm: {s: level + s / 100 for s in range(20)} for level, arm in enumerate("cba")})
        >>> ranks.ranks, ranks.p < 0.001, ranks.groups
        ({'a': 1.0, 'b': 2.0, 'c': 3.0}, True, [['a'], ['b'], ['c']])
    """
    shared = set.intersection(*(set(values) for values in scores.values())) if scores else set()
    if len(scores) < 3 or len(shared) < 2:
        return None
    order = average_rank(scores)
    order = dict(sorted(order.items(), key=lambda pair: pair[1]))
    critical = critical_difference(len(order), len(shared))
    return Ranks(order, len(shared), friedman(scores), critical, groups(order, critical))


def friedman(scores: Mapping[str, Scores[Key]]) -> float:
    """Return the p-value of Friedman's test; 1 if all arms are equal everywhere."""
    from scipy.stats import friedmanchisquare

    shared = sorted(set.intersection(*(set(values) for values in scores.values())), key=str)
    p = float(friedmanchisquare(*([values[key] for key in shared] for values in scores.values())).pvalue)
    return 1.0 if math.isnan(p) else p


def critical_difference(arms: int, sets: int, *, level: float = 0.05) -> float:
    """Return Nemenyi's critical difference q sqrt(a (a + 1) / (6 N)), where a = `arms` and N = `sets`.

    q is the quantile 1 - `level` of the studentised range, divided by sqrt(2). Smaller rank differences are not
    significant.

    Example:
        >>> round(critical_difference(5, 30), 3)
        1.114
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, arms, math.inf)) / math.sqrt(2)
    return q * math.sqrt(arms * (arms + 1) / (6 * sets))


def groups(ranks: Mapping[str, float], critical: float) -> list[list[str]]:
    """Return the maximal groups of neighbouring arms, the best first, whose ranks differ by less than `critical`.

    Example:
        >>> groups({"a": 1.0, "b": 1.5, "c": 2.2}, 1.0)
        [['a', 'b'], ['b', 'c']]
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    maximal: list[list[str]] = []
    for start, first in enumerate(names):
        group = [name for name in names[start:] if ranks[name] - ranks[first] < critical]
        if not maximal or not set(group) <= set(maximal[-1]):
            maximal.append(group)
    return maximal
