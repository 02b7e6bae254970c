"""Several runs beside each other, with confidence intervals where a measure is a share of the test objects."""

from __future__ import annotations

from collections.abc import Mapping

from m3g.evaluation import METRICS

SHARES = ("linear_", "knn_", "recall_", "polymatching", "paper_probe", "few_shot_")
SMALLER_IS_BETTER = ("median_rank", "alignment", "uniformity")
Z = 1.959964  # of a 95 % interval


def interval(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share measured on n objects.

    >>> [round(bound, 3) for bound in interval(0.9, 100)]
    [0.826, 0.945]
    """
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (share * (1 - share) / n + Z**2 / (4 * n**2)) ** 0.5
    # At the ends the bound is exact; rounding must not move it.
    return 0.0 if share <= 0 else max(0.0, centre - half), 1.0 if share >= 1 else min(1.0, centre + half)


def is_share(name: str) -> bool:
    return name.startswith(SHARES)


def cell(name: str, value: float | None, n: int) -> str:
    """A number of the table: shares in percent with their interval."""
    if value is None:
        return "—"
    if not is_share(name):
        return f"{value:.3f}"
    low, high = interval(value, n)
    return f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def comparison(runs: Mapping[str, tuple[Mapping[str, float], int]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of runs, given by name: their numbers, and on how many test objects they rest."""
    names = [name for name in METRICS if any(name in numbers for numbers, _ in runs.values())]
    rows = [[name, *(cell(name, numbers.get(name), n) for numbers, n in runs.values())] for name in names]
    return ["measure", *runs], rows


NOTE = (
    "Shares are in percent, with Wilson's 95 % interval over the test objects: it tells what other test objects would "
    "change, not what another seed of training would. Intervals that overlap leave the order of two runs open."
)
