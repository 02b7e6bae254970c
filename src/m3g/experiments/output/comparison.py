"""Tables of paired differences with corrected intervals, and average ranks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from m3g.evaluation.paired import Difference, Key, Scores, interval_of_mean, paired
from m3g.experiments.output.tables import markdown

X = TypeVar("X", int, float, str)  # abscissa: number of views, steps or labels, or an unseen domain


def average_rank(scores: Mapping[str, Scores[Key]]) -> dict[str, float]:
    """Return the mean rank of each arm (1 is best, ties receive their mean rank) over the settings common to all arms.

    Example:
        >>> average_rank({"a": {0: 0.9, 1: 0.5}, "b": {0: 0.8, 1: 0.6}, "c": {0: 0.1, 1: 0.1}})
        {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    from scipy.stats import rankdata

    shared = set.intersection(*(set(values) for values in scores.values())) if scores else set()
    if not shared:
        return {}
    ranks = rankdata([[-values[key] for key in shared] for values in scores.values()], axis=0)
    return dict(zip(scores, ranks.mean(1).tolist()))


def within_splits(scores: Mapping[str, Scores[Key]], *, test_to_train: float = 0.0) -> dict[str, tuple[float, float]]:
    """Return, by arm, the mean in percent, and half the width of a 95 % interval without the difficulty of the splits.

    The difficulty of a seed or split affects all arms alike. The interval is therefore computed after subtracting the
    mean of all arms in each split (Cousineau's intervals with Morey's correction), unless there is only one arm or
    there are fewer than two common splits.
    `test_to_train` widens the intervals for overlapping splits, see `m3g.evaluation.paired.paired`.

    Example:
        >>> intervals = within_splits({"a": {0: 0.5, 1: 0.7}, "b": {0: 0.4, 1: 0.6}})
        >>> {arm: (round(mean), round(width, 6)) for arm, (mean, width) in intervals.items()}
        {'a': (60, 0.0), 'b': (50, 0.0)}
    """
    shared = set.intersection(*(set(values) for values in scores.values())) if scores else set()
    means = {arm: 100 * statistics.fmean(values.values()) for arm, values in scores.items()}
    if len(scores) < 2 or len(shared) < 2:
        return {
            arm: (means[arm], 100 * interval_of_mean(list(values.values()), test_to_train=test_to_train))
            for arm, values in scores.items()
        }
    split_means = {key: statistics.fmean(values[key] for values in scores.values()) for key in shared}
    correction = math.sqrt(len(scores) / (len(scores) - 1))
    centred = {arm: [values[key] - split_means[key] for key in shared] for arm, values in scores.items()}
    return {
        arm: (means[arm], 100 * correction * interval_of_mean(values, test_to_train=test_to_train))
        for arm, values in centred.items()
    }


def at(scores: Mapping[str, Mapping[tuple[X, int], float]], x: X) -> dict[str, dict[int, float]]:
    """Return the scores at x, by arm and seed, from scores by arm and (x, seed); arms without scores at x are omitted.

    Example:
        >>> at({"a": {(2, 0): 0.5, (3, 0): 0.6}, "b": {(3, 0): 0.7}}, 2)
        {'a': {0: 0.5}}
    """
    selected = {arm: {seed: value for (m, seed), value in by.items() if m == x} for arm, by in scores.items()}
    return {arm: by for arm, by in selected.items() if by}


def lines(
    scores: Mapping[str, Mapping[tuple[X, int], float]], *, test_to_train: float
) -> dict[str, dict[X, tuple[float, float]]]:
    """Return, by arm and x, the mean and half the width of its interval (`within_splits`), from scores by (x, seed)."""
    curves: dict[str, dict[X, tuple[float, float]]] = {arm: {} for arm in scores}
    for x in sorted({x for by in scores.values() for x, _ in by}):
        for arm, point in within_splits(at(scores, x), test_to_train=test_to_train).items():
            curves[arm][x] = point
    return curves


def rank_row(scores: Mapping[str, Scores[Key]]) -> list[str]:
    """Return the average ranks of the arms as a row of a table."""
    ranks = average_rank(scores)
    return ["average rank", *(f"{ranks[arm]:.2f}" if arm in ranks else "—" for arm in scores)]


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return adjusted p-values of several hypotheses (Holm, 1979), which bound the family-wise error.

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for number, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[name]))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def holm_verdicts(comparisons: Mapping[Key, Difference]) -> dict[Key, str]:
    """Return `ahead`, `behind` or `tie` per comparison, at 5 % after Holm's correction over the table.

    Comparisons with fewer than two pairs are omitted.

    Example:
        >>> compared = {"a": Difference(0.1, 0.1, 5, 0.01), "b": Difference(0.1, 1, 5, 0.2)}
        >>> holm_verdicts({**compared, "c": Difference(0, 1, 1, 1)})
        {'a': 'ahead', 'b': 'tie'}
    """
    adjusted = holm({key: difference.p_value for key, difference in comparisons.items() if difference.pairs > 1})
    return {
        key: "tie" if not value < 0.05 else "ahead" if comparisons[key].mean > 0 else "behind"
        for key, value in adjusted.items()
    }


def difference_table(
    scores: Mapping[str, Scores[Key]],
    arm: str,
    *,
    test_to_train: float,
    split_of: Callable[[Key], Hashable] = lambda key: key,
    splits: str = "splits",
) -> str:
    """Return a table of the differences of one arm from every other, in percent; "" if no comparison has two splits.

    `splits` is the header of the column with the number of independent units.
    """
    compared = {
        other: paired(scores[arm], values, test_to_train=test_to_train, split_of=split_of)
        for other, values in scores.items()
        if other != arm and arm in scores
    }
    verdicts = holm_verdicts(compared)
    rows = [[f"{arm} minus", "difference", "95 % interval", splits, "smallest detectable", "after Holm"]]
    for other, verdict in verdicts.items():
        difference = compared[other]
        low, high = (100 * (difference.mean + sign * difference.half_width) for sign in (-1, 1))
        cells = [f"{100 * difference.mean:+.2f}", f"{low:+.2f} to {high:+.2f}", str(difference.pairs)]
        rows.append([other, *cells, f"{100 * difference.smallest:.2f}", verdict])
    return markdown(rows) if verdicts else ""


def control_table(
    main: Mapping[str, Scores[Key]],
    controls: Mapping[str, Mapping[str, Scores[Key]]],
    *,
    test_to_train: float,
    split_of: Callable[[Key], Hashable] = lambda key: key,
) -> str:
    """Return a table that compares each arm of a control with the same arm without it, and with M3G, in percent.

    Comparisons are over common settings. Holm's correction is over all comparisons of the table.
    """
    compared: dict[tuple[str, str, bool], Difference] = {}
    for control, arms in controls.items():
        for arm, values in arms.items():
            # If M3G has no such control ("no teacher, both directions"), use M3G in the control that this one extends
            # ("no teacher"), or else M3G without a control.
            wider = controls.get(control.split(", ")[0], {})
            ours = arms.get("m3g") or wider.get("m3g") or main.get("m3g", {})
            for against_m3g, pair in ((False, (values, main.get(arm, {}))), (True, (ours, values))):
                if not (against_m3g and arm == "m3g"):
                    compared[control, arm, against_m3g] = paired(*pair, test_to_train=test_to_train, split_of=split_of)
    verdicts = holm_verdicts(compared)
    titles = ["accuracy %", "without the control %", "change", "m3g minus method, with the control", "splits"]
    rows = [["control", "method", *titles]]
    for control, arms in controls.items():
        for arm, values in arms.items():
            keys = [key for key in values if key in main.get(arm, {})]
            if keys:
                levels = [f"{100 * statistics.fmean(part[key] for key in keys):.1f}" for part in (values, main[arm])]
                names = [(control, arm, against_m3g) for against_m3g in (False, True)]
                cells = [f"{compared[name]} {verdicts[name]}" if name in verdicts else "—" for name in names]
                rows.append([control, arm, *levels, *cells, str(compared[names[0]].pairs)])
    return markdown(rows) if len(rows) > 1 else ""
