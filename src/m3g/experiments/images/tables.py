"""The paper's Tables 1 and 4 and Figure 4, and the tables of `branches`, from finished runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from m3g.experiments.engine.spec import Result
from m3g.experiments.output import figures, published
from m3g.experiments.output.comparison import control_table, difference_table, lines, rank_row, within_splits
from m3g.experiments.output.lengths import length_table
from m3g.experiments.output.tables import grid_table, hours, markdown, percent, write_table
from m3g.experiments.runner.full import ALGORITHM_2
from m3g.experiments.runner.references import REFERENCES, reference_table

ORDER = (
    "m3g",
    ALGORITHM_2,
    "polyview",
    "infonce-ave",
    "infonce-pwe",
    "byol-ave",
    "byol-pwe",
    "cv",
    "cv-algorithm2",
    "csd",
    *REFERENCES,
)
RECOMMENDED = "epsilon 0.2"  # the paper's value
MAIN_SET = "tinyimagenet"  # its tables come first
Scores = dict[str, dict[tuple[int, int], float]]  # arm, (k, seed)
NOTE = (
    "The difference on a split is the mean over the numbers of views. Intervals are over the splits, with the "
    "correction of Nadeau and Bengio for overlapping splits. The last column is the verdict at 5 % after Holm's "
    "correction over the table."
)
Collect = Callable[[list[Result], Path], str]


def scores(results: list[Result]) -> Scores:
    """Return the accuracy of every arm by (k, seed)."""
    accuracy: Scores = {}
    for row in sorted(results, key=lambda row: ORDER.index(row["labels"]["arm"])):
        labels = row["labels"]
        if labels["stage"] == "test":
            accuracy.setdefault(labels["arm"], {})[labels["k"], labels["seed"]] = row["metrics"]["test"]
    return accuracy


def overlap(results: list[Result]) -> float:
    """Return the test images per training image, which the correction for overlapping splits requires.

    The value is 0 for ImageNet, which has a single test set.
    """
    return 0.0 if results[0]["labels"]["data"] == "imagenet" else 0.3 / 0.6


def differences(arms: Scores, arm: str, results: list[Result]) -> list[str]:
    """Return a table of the differences between an arm and all others over splits, and a note that explains it."""
    table = difference_table(arms, arm, test_to_train=overlap(results), split_of=lambda key: key[1])
    return [table, NOTE] if table else []


def by_views(arms: Scores, paper: Mapping[int, Mapping[str, object]]) -> str:
    """Return a table with a row per number of views, and the published numbers below each."""
    rows = [["accuracy %", *arms]]
    for k in sorted({k for values in arms.values() for k, _ in values}):
        rows.append([f"k = {k}", *(percent([v for (m, _), v in arms[arm].items() if m == k]) for arm in arms)])
        printed = [paper.get(k, {}).get(arm, "—") for arm in arms]
        rows.append([f"k = {k}, published", *(f"{v[0]} ± {v[1]}" if isinstance(v, tuple) else str(v) for v in printed)])
    rows.append(rank_row(arms))
    rows.append(["seeds", *(str(len({seed for _, seed in values})) for values in arms.values())])
    return markdown(rows)


def per_set(collect: Collect) -> Collect:
    """Return a function that applies `collect` to each data set.

    For the first data set, `collect` writes to the experiment's folder; for every other one, to a subfolder. `table.md`
    in the experiment's folder then contains the tables of all data sets.
    """

    def collect_all(results: list[Result], folder: Path) -> str:
        sets = list(dict.fromkeys(row["labels"]["data"] for row in results))
        sets.sort(key=lambda name: name != MAIN_SET)
        parts = []
        for name in sets:
            subfolder = folder if name == sets[0] else folder / name
            subfolder.mkdir(parents=True, exist_ok=True)
            text = collect([row for row in results if row["labels"]["data"] == name], subfolder)
            parts.append(text if subfolder == folder else f"## On {name}\n\n" + text.replace("](", f"]({name}/"))
        return write_table(parts, folder)

    return collect_all


@per_set
def collect_imagenet(results: list[Result], folder: Path) -> str:
    """Write Table 1."""
    arms = scores(results)
    parts = [hours(results)]
    if arms:
        parts += [by_views(arms, published.IMAGENET), _references(results)]
        parts += differences(arms, "m3g", results)
        curves = lines(arms, test_to_train=overlap(results))
        paper = {arm: {k: row[arm] for k, row in published.IMAGENET.items()} for arm in curves}
        figures.curves(curves, folder / "imagenet", xlabel="views k", ylabel="accuracy, %", published=paper)
        parts.append("![Accuracy against the number of views](imagenet.png)")
    parts += [chosen(results), _controls(arms, results), *_lengths(results, folder)]
    return write_table(parts, folder)


def _lengths(results: list[Result], folder: Path) -> list[str]:
    return length_table(results, lambda row: row["labels"]["k"], folder / "steps", test_to_train=overlap(results))


def _controls(arms: Scores, results: list[Result]) -> str:
    """Return a table that compares each control with the same method without it, and with M3G.

    Compared runs have the same numbers of views and seeds.
    """
    controls: dict[str, Scores] = {}
    for row in sorted(results, key=lambda row: (row["labels"].get("control", ""), ORDER.index(row["labels"]["arm"]))):
        labels = row["labels"]
        if labels["stage"] == "control":
            by_arm = controls.setdefault(labels["control"], {})
            by_arm.setdefault(labels["arm"], {})[labels["k"], labels["seed"]] = row["metrics"]["test"]
    return control_table(arms, controls, test_to_train=overlap(results), split_of=lambda key: key[1])


def _references(results: list[Result]) -> str:
    """Return a table of the scores of the inputs, and of the same network trained on labels."""
    references: dict[str, list[float]] = {}
    for row in results:
        if row["labels"]["stage"] == "reference":
            references.setdefault(row["labels"]["arm"], []).append(row["metrics"]["test"])
    rows = {"unaugmented images": {name: percent(values) for name, values in references.items()}}
    return reference_table("references, accuracy %", rows)


def chosen(results: list[Result]) -> str:
    """Return a table of the grids with the accuracy on validation images; the best setting of a method is marked."""
    grid = [row for row in results if row["labels"]["stage"] == "grid"]
    return grid_table(
        sorted(grid, key=lambda row: (ORDER.index(row["labels"]["arm"]), -row["metrics"]["validation"])),
        first="method",
    )


@per_set
def collect_cost(results: list[Result], folder: Path) -> str:
    """Write Table 4."""
    arms = scores(results)
    parts = [hours(results), by_views(arms, published.COST)]
    return write_table([*parts, *differences(arms, "cv", results)], folder)


@per_set
def collect_epsilon(results: list[Result], folder: Path) -> str:
    """Write Figure 4; the paper plots its curve without printing numbers, and recommends 0.2."""
    arms: Scores = {}
    for row in sorted(results, key=lambda row: row["labels"]["epsilon"]):
        labels = row["labels"]
        arms.setdefault(f"epsilon {labels['epsilon']:g}", {})[labels["k"], labels["seed"]] = row["metrics"]["test"]
    rows = [["accuracy %", *arms]]
    curves: dict[str, dict[float, tuple[float, float]]] = {}
    points = lines(arms, test_to_train=overlap(results))
    for k in sorted({k for values in arms.values() for k, _ in values}):
        rows.append([f"k = {k}", *(percent([v for (m, _), v in values.items() if m == k]) for values in arms.values())])
        curves[f"k = {k}"] = {float(name.split()[1]): by[k] for name, by in points.items() if k in by}
    rows.append(rank_row(arms))
    figures.curves(curves, folder / "epsilon", xlabel="epsilon", ylabel="accuracy, %", logarithmic=True)
    parts = [hours(results), markdown(rows)]
    parts += differences(arms, RECOMMENDED, results)
    return write_table([*parts, "![Accuracy against epsilon](epsilon.png)"], folder)


@per_set
def collect_branches(results: list[Result], folder: Path) -> str:
    """Write accuracy and memory by the number of student views."""
    rows = [["method", "student views", "accuracy %", "stored for the backward pass, MiB", "seeds"]]
    groups: dict[tuple[str, str], list[Result]] = {}
    for row in results:
        groups.setdefault((row["labels"]["arm"], str(row["labels"]["students"])), []).append(row)
    sizes: dict[str, dict[str, float]] = {}
    by_arm: dict[str, dict[str, dict[int, float]]] = {}
    for (arm, students), group in sorted(groups.items()):
        size = statistics.fmean(row["metrics"]["saved_bytes"] for row in group) / 2**20
        values = {row["labels"]["seed"]: row["metrics"]["test"] for row in group}
        rows.append([arm, students, percent(list(values.values())), f"{size:.1f}", str(len(group))])
        sizes.setdefault(arm, {})[students] = size
        by_arm.setdefault(arm, {})[students] = values
    shown = {
        arm: {
            students: (sizes[arm][students], *point)
            for students, point in within_splits(by_students, test_to_train=overlap(results)).items()
        }
        for arm, by_students in by_arm.items()
    }
    figures.scatter(shown, folder / "branches", xlabel="stored for the backward pass, MiB", ylabel="accuracy, %")
    parts = [hours(results), markdown(rows), "![Accuracy against memory by the number of student views](branches.png)"]
    for arm, by_students in by_arm.items():
        table = difference_table(by_students, "leave one out", test_to_train=overlap(results))
        parts += [f"{arm}, by student views:", table] if table else []
    return write_table(parts, folder)
