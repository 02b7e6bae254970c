"""More augmentations of fewer images at a fixed number of augmented images per step (as in Poly-View).

`m3g reproduce budget --data SETS`: 184 runs per data set, one to four hours on a shared core. Expected: all losses tie.

A step has k n = 96 augmented images, from two augmentations of 48 images to twelve augmentations of 8 images. All
methods train the network of `imagenet` without a teacher, on Tiny-ImageNet and on the emoji of one vendor, whose nine
categories are the classes. M3G compares all k views at once, with the sampled solver for k = 8 and 12. For every k and
method, one of five temperatures is chosen on the validation images of a split that is not used for the test accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from m3g.experiments.engine.spec import Experiment, Prepare, Request, Result, RunSpec, Settings, grid_values, merged
from m3g.experiments.images import runs as image_runs
from m3g.experiments.images import tables as image_tables
from m3g.experiments.images.imagenet import NO_TEACHER
from m3g.experiments.output import figures
from m3g.experiments.output.comparison import difference_table, lines
from m3g.experiments.output.tables import hours, markdown, percent, write_table
from m3g.experiments.runner.arms import TEMPERATURES, grid_runs
from m3g.experiments.sources.files import Arrays, find_file, once
from m3g.experiments.sources.images import prepare_tinyimagenet

BUDGET = 96  # augmented images per step
VIEWS = (2, 3, 4, 6, 8, 12)
VENDOR = "noto"
SYMMETRIC: Settings = {"loss_options": {"symmetric": True}}
ARMS: dict[str, Settings] = {"m3g": {}, "polyview": {}, "infonce-ave": SYMMETRIC, "infonce-pwe": SYMMETRIC}


def runs(request: Request) -> Iterator[RunSpec]:
    """Yield the runs of the grid and then the test runs, for every data set, number of views and method."""

    def run(data: str, k: int, method: str, seed: int) -> RunSpec:
        change = merged(merged(NO_TEACHER, ARMS[method]), {"data_options": {"batch_size": BUDGET // k}})
        change |= {"views_per_step": k} if method == "m3g" else {}
        return image_runs.image_run("budget", data, k, method, {}, seed, request, labels={"arm": method}, change=change)

    for data in sets("laptop"):
        for k in VIEWS:
            for method in filter(request.wants, ARMS):
                if k == 2 and method == "infonce-ave":
                    continue  # equal to infonce-pwe for k = 2
                changes = [{"loss_options.temperature": value} for value in TEMPERATURES]
                grid, candidates = grid_runs(changes, [run(data, k, method, image_runs.TUNING_SEED)])
                yield from grid
                for seed in range(request.seeds):
                    yield replace(run(data, k, method, seed), candidates=candidates)


@image_tables.per_set
def collect(results: list[Result], folder: Path) -> str:
    """Write accuracy against k at a fixed number of augmented images per step; return the text of the tables."""
    arms = image_tables.scores(results)
    rows = [["accuracy %", *arms]]
    for k in sorted({k for values in arms.values() for k, _ in values}):
        cells = [percent([value for (m, _), value in values.items() if m == k]) for values in arms.values()]
        rows.append([f"k = {k}, n = {BUDGET // k}", *cells])
    parts = [hours(results), markdown(rows)]
    if arms:
        curves = lines(arms, test_to_train=image_tables.overlap(results))
        figures.curves(
            curves, folder / "budget", xlabel=f"number k of views, each of {BUDGET}/k images", ylabel="accuracy, %"
        )
        parts += [
            "![Accuracy against the number of views](budget.png)",
            *image_tables.differences(arms, "m3g", results),
        ]
    for arm, values in arms.items():
        by_k: dict[str, dict[int, float]] = {}
        for (k, seed), value in sorted(values.items()):
            by_k.setdefault(f"k = {k}", {})[seed] = value
        table = difference_table(by_k, "k = 2", test_to_train=image_tables.overlap(results))
        parts += [f"{arm}, by views:", table] if table else []
    return write_table([*parts, _chosen_by_views(results)], folder)


def _chosen_by_views(results: list[Result]) -> str:
    """Return a table of the temperatures with the best validation accuracy, by method and number of views."""
    best: dict[tuple[str, int], Result] = {}
    for row in results:
        key = row["labels"]["arm"], row["labels"]["k"]
        if row["labels"]["stage"] == "grid" and (
            key not in best or row["metrics"]["validation"] > best[key]["metrics"]["validation"]
        ):
            best[key] = row
    views = sorted({k for _, k in best})
    rows = [["temperature chosen (validation %)", *(f"k = {k}" for k in views)]]
    for arm in sorted({arm for arm, _ in best}, key=image_tables.ORDER.index):
        chosen = [best.get((arm, k)) for k in views]
        rows.append([arm, *("—" if row is None else _setting_and_score(row) for row in chosen)])
    return markdown(rows) if best else ""


def _setting_and_score(row: Result) -> str:
    values = grid_values(row["labels"]).values()
    return f"{', '.join(f'{value:g}' for value in values)} ({100 * row['metrics']['validation']:.1f})"


def prepare_emoji(source: Path | None, target: Path) -> None:
    """Write the emoji of one vendor with their categories."""

    def make() -> Arrays:
        with np.load(find_file(source, "emoji_5vendors_32.npz"), allow_pickle=False) as stored:
            vendor = stored["domains"].tolist().index(VENDOR)
            return {"images": stored["X"][vendor], "label": stored["category"]}

    once(target, "emoji.npz", make)


def sets(scale: str) -> dict[str, Prepare]:
    return {"tinyimagenet": prepare_tinyimagenet, "emoji": prepare_emoji}


EXPERIMENT = Experiment(
    name="budget",
    runs=runs,
    work=image_runs.work,
    collect=collect,
    sets=sets,
    methods=tuple(ARMS),
    seconds=15.0,
    seeds={"laptop": 3},
)
