"""Scores of `m3g reproduce views` by arm, data set and seed."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping

from m3g.experiments.engine.spec import Change, Result
from m3g.experiments.output.ranks import Ranks, ranked
from m3g.experiments.views.grids import CANONICAL
from m3g.experiments.views.sets import DIGITS_BY_NUMBER, SETS

OURS = "m3g"
BATCH = "data_options.batch_size"  # label of runs that tune the batch size
NOT_LOSSES = ("raw", "pca", "linear-mcca", "supervised")
PARTS = tuple(name for name, view_set in SETS.items() if view_set.part)  # sets only in the curve against k
TASKS = {
    "linear_mean": "linear probe",
    "moved": "moved probe",
    "recall": "R@1 from one view",
    "recall_rest": "R@1 from all others",
    "few_5_mean": "5 labels per class",
    "nmi": "clusters, NMI",
}
Table = dict[str, dict[str, dict[int, float]]]  # arm, data set, seed


def is_control(arm: str) -> bool:
    """Return whether an arm repeats another under other conditions, such as `m3g, missing in training`."""
    return "," in arm


def setting(changes: Change) -> str:
    """Format the values of a setting.

    Example:
        >>> setting({"loss_options.temperature": 0.2, CANONICAL: True, BATCH: 64})
        '0.2 canonical, n = 64'
    """
    values = [f"{v:g}" for name, v in changes.items() if name not in (CANONICAL, BATCH)]
    text = ", ".join(values) + (" canonical" if changes.get(CANONICAL) else "")
    return text + (f", n = {changes[BATCH]}" if BATCH in changes else "")


def measured(results: Iterable[Result]) -> list[Result]:
    """Return the runs evaluated on test rows, in the order of the data sets, without diverged ones."""
    tests = [row for row in results if row["labels"]["stage"] == "test" and "diverged" not in row["metrics"]]
    order = list(SETS)
    return sorted(tests, key=lambda row: (*order, row["labels"]["data"]).index(row["labels"]["data"]))


def scores(tests: Iterable[Result], name: str) -> Table:
    """Return a metric by arm, data set and seed; M3G first, baselines last."""
    table: Table = {}
    order = (OURS, "infonce-pwe", "infonce-ave")

    def position(row: Result) -> tuple[bool, bool, int, str]:
        arm = row["labels"]["arm"]
        return is_control(arm), arm in NOT_LOSSES, order.index(arm) if arm in order else len(order), arm

    for row in sorted(tests, key=position):
        value = row["metrics"].get(name)
        if value is not None and value == value:
            labels = row["labels"]
            table.setdefault(labels["arm"], {}).setdefault(labels["data"], {})[labels["seed"]] = value
    return table


def means(table: Table, *, seeds: int = 0) -> dict[str, dict[str, float]]:
    """Return the mean over the seeds by arm and data set, if there are at least `seeds`."""
    return {
        arm: {data: statistics.fmean(by.values()) for data, by in sets.items() if len(by) >= seeds}
        for arm, sets in table.items()
    }


def common(sets_of: Mapping[str, Collection[str]]) -> set[str]:
    """Return the data sets common to M3G and both forms of InfoNCE, or to those of the three that have any.

    `sets_of` maps arms to their data sets.
    """
    sets = [set(sets_of[arm]) for arm in (OURS, "infonce-pwe", "infonce-ave") if sets_of.get(arm)]
    return set.intersection(*sets) if sets else set()


def complete(table: Table) -> dict[str, dict[str, float]]:
    """Return means, for ranks, of the arms with all data sets of `common`, without `supervised` and controls."""
    by_arm = means(table)
    required = common(by_arm)
    return {
        arm: {data: sets[data] for data in required}
        for arm, sets in by_arm.items()
        if required and required <= set(sets) and arm != "supervised" and not is_control(arm)
    }


def ranks_of(tables: dict[str, Table]) -> dict[str, Ranks]:
    """Return the ranks of each task with enough results."""
    by_task = {name: ranked(complete(tables[name])) for name in TASKS}
    return {name: ranks for name, ranks in by_task.items() if ranks is not None}


def by_number(tests: Iterable[Result], name: str) -> dict[str, dict[int, list[float]]]:
    """Return a metric of the digits by arm and number of views, one value per seed.

    Only arms with results for all numbers of views that any arm has are included.
    """
    table = scores(tests, name)
    by_arm = {
        arm: {k: list(by[data].values()) for k, data in DIGITS_BY_NUMBER.items() if data in by}
        for arm, by in table.items()
        if not is_control(arm)
    }
    most = max((len(by) for by in by_arm.values()), default=0)
    return {arm: by for arm, by in by_arm.items() if 1 < len(by) == most}


def few_views(tests: list[Result]) -> dict[str, dict[str, float]]:
    """Return, by arm, the accuracy of a probe trained on all views and tested on one view, half of them, and all.

    It is averaged over seeds and data sets.
    """
    tables: dict[str, Table] = {"one view": {}, "half of the views": {}, "all views": {}}
    for row in tests:
        by_size = row["metrics"].get("subsets")
        if by_size:
            k, labels = len(by_size), row["labels"]
            for table, size in zip(tables.values(), (1, (k + 1) // 2, k)):
                by = table.setdefault(labels["arm"], {}).setdefault(labels["data"], {})
                by[labels["seed"]] = by_size[str(size)]
    shared = common(means(tables["all views"]))
    accuracy: dict[str, dict[str, float]] = {}
    for name, table in tables.items():
        for arm, by_data in means(table).items():
            if shared and shared <= set(by_data):
                accuracy.setdefault(arm, {})[name] = statistics.fmean(by_data[data] for data in shared)
    return accuracy


def missing_curves(tests: list[Result], name: str) -> dict[str, dict[str, float]]:
    """Return the mean over seeds and data sets of a score, by arm and fraction of missing entries.

    Sets of two views are excluded, because at most half of their entries can be missing, and so are sets with missing
    entries.
    """
    table: dict[str, Table] = {}
    for row in tests:
        about = SETS[row["labels"]["data"]]
        if len(about.views) == 2 or about.gaps:
            continue
        for fraction, values in row["metrics"].get("absent", {}).items():
            if name in values:
                by = table.setdefault(fraction, {}).setdefault(row["labels"]["arm"], {})
                by.setdefault(row["labels"]["data"], {})[row["labels"]["seed"]] = values[name]
    by_fraction = {fraction: means(by) for fraction, by in table.items()}
    shared = common(by_fraction.get("0", {}))
    curves: dict[str, dict[str, float]] = {}
    for fraction, by_arm in by_fraction.items():
        for arm in sorted(by_arm, key=lambda arm: (arm != OURS, arm in NOT_LOSSES, arm)):
            if shared and shared <= set(by_arm[arm]):
                curves.setdefault(arm, {})[fraction] = statistics.fmean(by_arm[arm][data] for data in shared)
    return curves
