"""Tables of `m3g reproduce views`, from finished runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from m3g.evaluation.paired import Difference, paired
from m3g.experiments.engine.spec import Result, grid_values
from m3g.experiments.output.comparison import holm_verdicts
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import hours, markdown, percent, write_table
from m3g.experiments.views import pictures as views_pictures
from m3g.experiments.views.pictures import BY_NUMBER
from m3g.experiments.views.scores import (
    NOT_LOSSES,
    OURS,
    PARTS,
    TASKS,
    Table,
    by_number,
    few_views,
    is_control,
    means,
    measured,
    missing_curves,
    ranks_of,
    scores,
    setting,
)

TEST_TO_TRAIN = 0.2 / 0.6
# Scores of the tables, with their descriptions.
METRICS = {
    "linear_mean": "linear probe on the mean of the views",
    "moved": "linear probe trained on one view and tested on another",
    "recall": "R@1 from one view to another",
    "recall_rest": "R@1 in a view from all others (their mean; for `m3g-rest` their product)",
    "few_5_mean": "nearest class mean from 5 labels per class, on the mean of the views",
    "few_1_mean": "nearest class mean from 1 label per class, on the mean of the views",
    "few_10_mean": "nearest class mean from 10 labels per class, on the mean of the views",
    "knn_mean": "5 nearest neighbours on the mean of the views",
    "polymatching": "objects matched correctly in all views by the best polymatching of 16",
    "nmi": "clusters against classes, normalised mutual information",
    "ari": "clusters against classes, adjusted Rand index",
    "cluster_accuracy": "clusters against classes, accuracy of the best assignment",
    "linear_concat": "linear probe on all views, concatenated",
    "knn_concat": "5 nearest neighbours on all views, concatenated",
    "few_1_concat": "nearest class mean from 1 label per class, on all views, concatenated",
    "few_5_concat": "nearest class mean from 5 labels per class, on all views, concatenated",
    "few_10_concat": "nearest class mean from 10 labels per class, on all views, concatenated",
}


def collect(results: list[Result], folder: Path) -> str:
    """Write `table.md` and the figures; return the text to print."""
    all_tests = measured(results)
    parts = [hours(results), _finished(all_tests)]
    results = [row for row in results if row["labels"]["data"] not in PARTS]
    tests = measured(results)
    tables = {name: scores(tests, name) for name in METRICS}
    parts += ["## Average ranks", *_ranks(tables), "## M3G against each loss", _against(tables)]
    parts += ["## M3G against the best other loss of each data set", _by_set(tables)]
    for name, about in METRICS.items():
        if tables[name]:
            parts += [f"## {about[0].upper()}{about[1:]}", _table(tables[name])]
    parts += ["## Missing entries in test rows", _missing(tests, "linear"), _missing(tests, "recall_rest")]
    parts += ["## Probe of all views on subsets of the views", _few_views(tests)]
    parts += ["## Digits with the first k of their views", *(_by_number(all_tests, name) for name in BY_NUMBER)]
    lengths = length_table(results, lambda row: row["labels"]["data"], folder / "steps", test_to_train=TEST_TO_TRAIN)
    parts += ["## Other numbers of steps on the scenes", *lengths] if lengths else []
    parts += ["## Settings chosen on validation rows", _grid(results)]
    text = write_table(parts, folder)
    pictures = views_pictures.draw(results, tables, folder)
    pictures += views_pictures.by_number(all_tests, folder / "by_number")
    return "\n".join([text, "", *(f"picture     {path}" for path in pictures)])


def _ranks(tables: dict[str, Table]) -> list[str]:
    tasks = ranks_of(tables)
    if not tasks:
        return ["(Too few finished runs.)"]
    arms = list(dict.fromkeys(arm for task in tasks.values() for arm in task.ranks))
    mean = {arm: statistics.fmean(task.ranks[arm] for task in tasks.values() if arm in task.ranks) for arm in arms}
    rows = [["rank (1 is best)", *(TASKS[name] for name in tasks), "mean"]]
    for arm in sorted(arms, key=lambda arm: mean[arm]):
        cells = [f"{task.ranks[arm]:.2f}" if arm in task.ranks else "—" for task in tasks.values()]
        rows.append([arm, *cells, f"{mean[arm]:.2f}"])
    rows.append(["critical difference (Nemenyi, 5 %)", *(f"{task.critical:.2f}" for task in tasks.values()), ""])
    rows.append(["Friedman's p", *(f"{task.p:.1e}" for task in tasks.values()), ""])
    rows.append(["data sets", *(str(task.sets) for task in tasks.values()), ""])
    return [
        markdown(rows),
        "Arms with results on all data sets of the last row are ranked, except `supervised`, which uses labels.",
    ]


def _against(tables: dict[str, Table]) -> str:
    """Return a table of the differences between M3G and every other arm, paired over data sets (means over seeds)."""
    arms = [arm for arm in tables["recall"] if arm != OURS and not is_control(arm)]
    compared = {}
    for name in TASKS:
        by_arm = means(tables[name])
        for arm in arms:
            compared[arm, name] = paired(by_arm.get(OURS, {}), by_arm.get(arm, {}), test_to_train=0.0)
    verdicts = holm_verdicts(compared)

    def cell(arm: str, name: str) -> str:
        difference = compared[arm, name]
        return f"{difference} {verdicts[arm, name]} ({difference.pairs})" if difference.pairs > 1 else "—"

    rows = [["M3G minus", *TASKS.values()], *([arm, *(cell(arm, name) for name in TASKS)] for arm in arms)]
    note = "Mean difference in points, 95 % interval, and the number of data sets."
    return f"{markdown(rows)}\n\n{note} {_after_holm(verdicts)}"


def _after_holm(verdicts: Mapping[tuple[str, str], str]) -> str:
    return f"Ahead and behind: at 5 % after Holm's correction over the {len(verdicts)} comparisons of the table."


def _by_set(tables: dict[str, Table]) -> str:
    """Return a table of the differences between M3G and the best other loss of each data set, over the splits."""
    sets = list(tables["recall"].get(OURS, {}))
    best: dict[tuple[str, str], str] = {}
    compared: dict[tuple[str, str], Difference] = {}
    for data in sets:
        for name in TASKS:
            table = tables[name]
            others = {
                arm: statistics.fmean(by[data].values())
                for arm, by in table.items()
                if data in by and arm != OURS and arm not in NOT_LOSSES and not is_control(arm)
            }
            if data in table.get(OURS, {}) and others:
                arm = best[data, name] = max(others, key=lambda arm: others[arm])
                compared[data, name] = paired(table[OURS][data], table[arm][data], test_to_train=TEST_TO_TRAIN)
    verdicts = holm_verdicts(compared)
    rows = [["data set", *TASKS.values()]]
    for data in sets:
        keys = [(data, name) for name in TASKS]
        rows.append(
            [data, *(f"{compared[key]} {verdicts[key]} ({best[key]})" if key in verdicts else "—" for key in keys)]
        )
    note = "The best of the other losses is chosen by its mean on the same rows, which favours it."
    return f"{markdown(rows)}\n\n{note} 95 % intervals over splits (Nadeau and Bengio). {_after_holm(verdicts)}"


def _table(table: Table) -> str:
    sets = list(dict.fromkeys(data for by in table.values() for data in by))
    rows = [["%", *sets]]
    rows += [[arm, *(percent(list(by.get(data, {}).values())) for data in sets)] for arm, by in table.items()]
    return markdown(rows)


def _missing(tests: list[Result], name: str) -> str:
    """Return a table of means over the data sets common to all shown arms, by the fraction of missing entries."""
    curves = missing_curves(tests, name)
    fractions = sorted({fraction for by in curves.values() for fraction in by}, key=float)
    if not curves:
        return ""
    title = {"linear": "linear probe", "recall_rest": TASKS["recall_rest"]}[name]
    rows = [[f"{title}, %", *(f"{float(fraction):.0%} missing" for fraction in fractions)]]
    rows += [[arm, *(f"{100 * by[fraction]:.1f}" for fraction in fractions)] for arm, by in curves.items()]
    return markdown(rows)


def _by_number(tests: list[Result], name: str) -> str:
    curves = by_number(tests, name)
    numbers = sorted({k for by in curves.values() for k in by})
    if not numbers:
        return ""
    rows = [[f"{BY_NUMBER[name]}, %", *(f"k = {k}" for k in numbers)]]
    return markdown(rows + [[arm, *(percent(by.get(k, [])) for k in numbers)] for arm, by in curves.items()])


def _few_views(tests: list[Result]) -> str:
    """Return a table of the accuracy of a probe that is trained on the mean of all views and tested on that of some."""
    accuracy = few_views(tests)
    if not accuracy:
        return ""
    names = list(next(iter(accuracy.values())))
    return markdown([["%", *names], *([arm, *(f"{100 * by[n]:.1f}" for n in names)] for arm, by in accuracy.items())])


def _grid(results: list[Result]) -> str:
    """Return a table of the chosen setting of each arm and data set, with its validation score."""
    grids: dict[str, dict[str, list[tuple[float, str]]]] = {}
    chosen: dict[tuple[str, str], str] = {}
    for row in results:
        labels = row["labels"]
        arm, data = labels["arm"], labels["data"]
        if labels["stage"] == "grid":
            # A setting chosen before the batch size was tuned is not among the labels.
            change = {**(row.get("chosen") or {}), **grid_values(labels)}
            score = row["metrics"].get("validation") or 0.0
            grids.setdefault(arm, {}).setdefault(data, []).append((score, setting(change)))
        elif row.get("chosen"):
            chosen[arm, data] = setting(row["chosen"] or {})
    sets = list(dict.fromkeys(data for by in grids.values() for data in by))
    rows = [["setting (validation %)", *sets]]
    for arm, by in grids.items():
        cells = []
        for data in sets:
            best = max(by[data], key=lambda pair: pair[0]) if data in by else None
            # Of several equally good settings, the runs use the middle one.
            cells.append("—" if best is None else f"{chosen.get((arm, data), best[1])} ({100 * best[0]:.1f})")
        rows.append([arm, *cells])
    return markdown(rows)


def _finished(tests: list[Result]) -> str:
    sets = {row["labels"]["data"] for row in tests}
    arms = {row["labels"]["arm"] for row in tests}
    seeds = {row["labels"]["seed"] for row in tests}
    return (
        f"Finished: {len(tests)} measured runs of {len(arms)} arms on {len(sets)} data sets (the digits "
        f"with three to five of their six views count as further sets), up to {len(seeds)} seeds each."
    )
