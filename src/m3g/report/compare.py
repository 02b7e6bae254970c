"""Comparison of runs: means over seeds, intervals, and paired differences."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from m3g.evaluation import METRICS
from m3g.evaluation.paired import Difference, bootstrap, paired

FRACTIONS = ("linear_", "knn_", "recall_", "polymatching", "paper_probe", "few_shot_")
SMALLER_IS_BETTER = ("median_rank", "alignment", "uniformity")
SPLIT = "data_options.split_seed"
SEEDS = ("seed", "data_options.seed", SPLIT)
DATA = ("data", "data_options.paths", "data_options.table", "data_options.labels")  # settings that name the data
OTHER_DATA = "The runs have different data: scores may not be comparable, and linear CCA, raw and chance are omitted."
MAX_SETTINGS = 3  # maximum number of settings in the name of an arm
Z = 1.959964  # normal quantile of a 95 % interval
Table = tuple[list[str], list[list[str]]]


@dataclass
class Measured:
    """Scores of an evaluated run.

    Attributes:
        name: displayed name.
        numbers: scores by the names of `METRICS`.
        num_test: number of evaluated test objects.
        num_train: number of training objects.
        settings: settings of the run by dotted name.
        rows: by measure and row number, the contribution of a test row to the score.
        references: by reference (linear CCA, raw, chance) and measure, the score on the same rows.
    """

    name: str
    numbers: Mapping[str, float]
    num_test: int
    num_train: int
    settings: Mapping[str, object] = field(default_factory=dict)
    rows: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def num_rows(self, name: str) -> int:
        """Return the number of test rows that contribute to a score: all, unless `rows` has NaN for some of them."""
        return sum(not math.isnan(value) for value in self.rows.get(name, {}).values()) or self.num_test

    @property
    def split(self) -> object:
        return self.settings.get(SPLIT, 0)

    @property
    def seeds(self) -> tuple[object, ...]:
        return (*(self.settings.get(name) for name in SEEDS if name != SPLIT), self.split)


def interval(fraction: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a fraction measured on n objects.

    Example:
        >>> [round(bound, 3) for bound in interval(0.9, 100)]
        [0.826, 0.945]
    """
    centre = (fraction + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * (fraction * (1 - fraction) / n + Z**2 / (4 * n**2)) ** 0.5
    # For fractions of 0 and 1, one bound is exact and must not be affected by rounding.
    return 0.0 if fraction <= 0 else max(0.0, centre - half), 1.0 if fraction >= 1 else min(1.0, centre + half)


def is_fraction(name: str) -> bool:
    """Return whether a measure is a fraction, which is shown in percent."""
    return name.startswith(FRACTIONS)


def cell(name: str, value: float | None, n: int) -> str:
    """Return a score as text; fractions are in percent, with Wilson's interval for n test objects."""
    if value is None:
        return "—"
    return _bracketed(name, value, *interval(value, n)) if is_fraction(name) else _number(name, value)


def _number(name: str, value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if is_fraction(name) else f"{value:{sign}.3f}"


def _bracketed(name: str, value: float, low: float, high: float, sign: str = "") -> str:
    return f"{_number(name, value, sign)} [{_number(name, low, sign)}, {_number(name, high, sign)}]"


def arms(runs: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Group runs that differ only in their seeds, including that of the split, into arms; return the arms by name.

    An arm of several runs is named after the settings that distinguish the arms, and an arm of one run after the run.
    """
    groups: list[list[Measured]] = []
    for run in runs:
        group = next((group for group in groups if all(_differ_only_in_seed(other, run) for other in group)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    names = {name for run in runs for name in run.settings if name not in SEEDS}
    distinguishing = [
        name for name in sorted(names) if len({repr(group[0].settings.get(name)) for group in groups}) > 1
    ]
    by_name: dict[str, list[Measured]] = {}
    for group in groups:
        title = group[0].name
        if len(group) > 1:
            shared = group[0].settings
            words = [f"{name.split('.')[-1]} {shared[name]}" for name in distinguishing if name in shared]
            title = f"{', '.join(words[:MAX_SETTINGS]) or title} ({_count(group)})"
        titles = itertools.chain([title], (f"{title} #{number}" for number in itertools.count(2)))
        by_name[next(title for title in titles if title not in by_name)] = group
    return by_name


def _count(runs: Sequence[Measured]) -> str:
    """Return a text such as "5 seeds" for one split, "5 splits" for one seed each, otherwise "10 seeds, 5 splits"."""
    splits = len({run.split for run in runs})
    seeds = [f"{len(runs)} seeds"] if splits < len(runs) else []
    return ", ".join([*seeds, *([f"{splits} splits"] if splits > 1 else [])])


def _differ_only_in_seed(one: Measured, other: Measured) -> bool:
    """Return whether two runs differ only in their seed."""
    settings = [{name: value for name, value in run.settings.items() if name not in SEEDS} for run in (one, other)]
    return bool(one.settings) and settings[0] == settings[1] and one.seeds != other.seeds


def same_data(runs: Sequence[Measured]) -> bool:
    """Return whether the settings of all runs name the same data."""
    return len({repr([run.settings.get(name) for name in DATA]) for run in runs}) == 1


def comparison(runs: Sequence[Measured]) -> Table:
    """Return a table of scores, one column per arm, as its header and its rows.

    The score of an arm is the mean over its seeds or splits with its 95 % interval (`over_seeds`). For a single run,
    fractions have Wilson's interval. The last columns are the means of linear CCA, raw features and chance over all
    runs that have them; they are omitted if the runs have different data.
    """
    groups = arms(runs)
    names = [name for name in METRICS if any(name in run.numbers for run in runs)]
    references = list(dict.fromkeys(name for run in runs for name, scores in run.references.items() if scores))
    references = references if same_data(runs) else []
    rows = [
        [
            name,
            *(_arm_cell(name, group) for group in groups.values()),
            *(_reference_cell(name, reference, runs) for reference in references),
        ]
        for name in names
    ]
    return ["measure", *groups, *references], rows


def _reference_cell(name: str, reference: str, runs: Sequence[Measured]) -> str:
    values = [run.references[reference][name] for run in runs if name in run.references.get(reference, {})]
    return _number(name, statistics.fmean(values)) if values else "—"


def _arm_cell(name: str, group: list[Measured]) -> str:
    runs = [run for run in group if run.numbers.get(name) is not None]
    if len(runs) < 2:
        return cell(name, runs[0].numbers[name], runs[0].num_rows(name)) if runs else cell(name, None, 0)
    scores = {run.seeds: run.numbers[name] for run in runs}
    mean, half, *_ = over_seeds(runs, scores, dict.fromkeys(scores, 0.0))
    return _bracketed(name, mean, mean - half, mean + half)


def over_seeds(
    runs: Sequence[Measured], ours: Mapping[tuple[object, ...], float], theirs: Mapping[tuple[object, ...], float]
) -> Difference:
    """Return the mean difference of scores by seeds, with Student's 95 % interval.

    If the runs have different splits, which overlap, the differences are averaged within each split first, and the
    interval is corrected by the ratio of test to training objects; see `paired`.
    """
    if len({run.split for run in runs}) == 1:
        return paired(ours, theirs)
    ratio = statistics.fmean(run.num_test / run.num_train for run in runs)
    return paired(ours, theirs, test_to_train=ratio, split_of=lambda seeds: seeds[-1])


def differences(runs: Sequence[Measured]) -> Table:
    """Return a table of the paired differences of every arm from the first, as its header and its rows.

    The pairs are the common seeds or splits if there are two or more, otherwise the test rows of a common seed. The
    table has no rows if there are no pairs.
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
    paired_difference, unit = difference(name, group, base)
    if paired_difference is None:
        return ""
    mean, half = paired_difference.mean, paired_difference.half_width
    words = {"ahead": "better", "behind": "worse", "tie": "tie"}
    if name.startswith(SMALLER_IS_BETTER):
        words |= {"ahead": "worse", "behind": "better"}
    interval = _bracketed(name, mean, mean - half, mean + half, sign="+")
    return f"{interval} {words[paired_difference.verdict]}, {unit}"


def difference(name: str, group: list[Measured], base: list[Measured]) -> tuple[Difference | None, str]:
    """Return the paired difference of a measure between two arms (None without pairs) and its pairs as text."""
    ours, theirs = ({run.seeds: run for run in arm if run.numbers.get(name) is not None} for arm in (group, base))
    common = [seeds for seeds in ours if seeds in theirs]
    if len(common) > 1:
        values = [{seeds: arm[seeds].numbers[name] for seeds in common} for arm in (ours, theirs)]
        runs = [ours[seeds] for seeds in common]
        return over_seeds(runs, *values), _count(runs)
    for seeds in common:
        our_rows, their_rows = ours[seeds].rows.get(name, {}), theirs[seeds].rows.get(name, {})
        if our_rows and our_rows.keys() == their_rows.keys():
            over_rows = bootstrap(our_rows, their_rows)
            return (over_rows, f"{over_rows.pairs} rows") if over_rows.pairs else (None, "")
    return None, ""


NOTE = (
    "Fractions are in percent. Brackets contain 95 % intervals. Columns of several seeds have Student's interval over "
    "the seeds. Columns of several splits have Student's interval over the splits with the correction of Nadeau and "
    "Bengio, because random splits of the same objects overlap. Fractions of a single run have Wilson's interval over "
    "the test objects, which accounts for the choice of test objects but not for the training seed. Linear CCA, raw "
    "features and chance are means over the runs."
)
PAIRED = (
    "Paired differences with 95 % intervals: Student's over common seeds; with “splits”, Student's over common splits "
    "with the correction of Nadeau and Bengio; with “rows”, a bootstrap over the test rows of one common seed. “Tie” "
    "means that the interval contains 0, so the sign of the difference is not known."
)
