"""Several runs beside each other: means over seeds, intervals, and paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from m3g.evaluation import METRICS
from m3g.evaluation.paired import Difference, bootstrap, interval_of_mean, paired

SHARES = ("linear_", "knn_", "recall_", "polymatching", "paper_probe", "few_shot_")
SMALLER_IS_BETTER = ("median_rank", "alignment", "uniformity")
SEEDS = ("seed", "data_options.seed", "data_options.split_seed")
MOST_SETTINGS = 3  # in the name of an arm
Z = 1.959964  # of a 95 % interval
Table = tuple[list[str], list[list[str]]]


@dataclass
class Measured:
    """A run that was measured.

    Attributes:
        name: what to call it.
        numbers: by the names of `METRICS`.
        num_test: on how many test objects they rest.
        settings: under names with points.
        rows: per measure, what each test row contributes, by its number.
    """

    name: str
    numbers: Mapping[str, float]
    num_test: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[Any, ...]:
        return tuple(self.settings.get(name) for name in SEEDS)


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


def arms(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Runs that differ only in their seed belong to one arm; an arm of several is called by what sets it apart."""
    groups: list[list[Measured]] = []
    for run in runs:
        mine = next((group for group in groups if _same(group[0], run)), None)
        if mine is None:
            groups.append([run])
        else:
            mine.append(run)
    names = {name for run in runs for name in run.settings if name not in SEEDS}
    apart = [
        name for name in sorted(names) if len({repr(group[0].settings.get(name)) for group in groups}) > 1
    ]  # fmt: skip
    found: dict[str, list[Measured]] = {}
    for group in groups:
        if len(group) == 1:
            found[group[0].name] = group
            continue
        words = [f"{name.split('.')[-1]} {group[0].settings[name]}" for name in apart if name in group[0].settings]
        title = ", ".join(words[:MOST_SETTINGS]) or group[0].name
        found[f"{title} ({len(group)} seeds)"] = group
    return found


def _same(one: Measured, other: Measured) -> bool:
    """Whether two runs differ in their seed and in nothing else."""
    settings = [{name: value for name, value in run.settings.items() if name not in SEEDS} for run in (one, other)]
    return bool(one.settings) and settings[0] == settings[1] and one.seeds != other.seeds


def comparison(runs: Sequence[Measured]) -> Table:
    """Head and rows of the table of arms: means over seeds, with Student's 95 % interval; of one run Wilson's."""
    found = arms(runs)
    names = [name for name in METRICS if any(name in run.numbers for run in runs)]
    return ["measure", *found], [[name, *(_arm_cell(name, group) for group in found.values())] for name in names]


def _arm_cell(name: str, group: list[Measured]) -> str:
    values = [run.numbers[name] for run in group if run.numbers.get(name) is not None]
    if len(group) == 1 or not values:
        return cell(name, values[0] if values else None, group[0].num_test)
    middle, half = statistics.fmean(values), interval_of_mean(values)
    if not is_share(name):
        return f"{middle:.3f} [{middle - half:.3f}, {middle + half:.3f}]"
    return f"{100 * middle:.1f} [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def differences(runs: Sequence[Measured]) -> Table:
    """Every arm minus the first, paired: over the seeds that both have where there are two of them or more, else over
    the test rows of a seed that both have. No rows where nothing can be paired.
    """
    (first, ours), *others = arms(runs).items()
    head = ["measure", *(f"{name} minus {first}" for name, _ in others)]
    rows = []
    for name in METRICS:
        cells = [_difference_cell(name, group, ours) for _, group in others]
        if any(cells):
            rows.append([name, *(text or "—" for text in cells)])
    return head, rows


def _difference_cell(name: str, group: list[Measured], base: list[Measured]) -> str:
    found, of = difference(name, group, base)
    if found is None:
        return ""
    scale = 100 if is_share(name) else 1
    digits = 1 if is_share(name) else 3
    low, high = (scale * (found.mean + sign * found.half_width) for sign in (-1, 1))
    words = {"ahead": "better", "behind": "worse", "tie": "open"}
    if name.startswith(SMALLER_IS_BETTER):
        words |= {"ahead": "worse", "behind": "better"}
    return f"{scale * found.mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}] {words[found.verdict]}, {of}"


def difference(name: str, group: list[Measured], base: list[Measured]) -> tuple[Difference | None, str]:
    """The paired difference of a measure between two arms, and over what it was paired; None where it cannot be."""
    ours, theirs = ({run.seeds: run for run in arm if run.numbers.get(name) is not None} for arm in (group, base))
    common = [seeds for seeds in ours if seeds in theirs]
    if len(common) > 1:
        values = [{seeds: arm[seeds].numbers[name] for seeds in common} for arm in (ours, theirs)]
        return paired(*values), f"{len(common)} seeds"
    for seeds in common:
        mine, other = ours[seeds].rows.get(name, {}), theirs[seeds].rows.get(name, {})
        if mine and mine.keys() == other.keys():
            return bootstrap(mine, other), f"{len(mine)} rows"
    return None, ""


NOTE = (
    "Shares are in percent. In brackets is a 95 % interval: of several runs that differ only in their seed Student's, "
    "over the seeds; of one run Wilson's, over the test objects, which tells what other test objects would change, not "
    "what another seed of training would."
)
PAIRED = (
    "Paired differences with their 95 % interval: Student's over the seeds that both arms have, or with one seed the "
    "bootstrap over the test rows. “Open” where the interval holds 0."
)
