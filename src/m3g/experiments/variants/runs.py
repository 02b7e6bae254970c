"""A better M3G? `m3g reproduce variants`.

Variants of its epsilon (`m3g.experiments.variants.epsilon`) and of what it compares
(`m3g.experiments.variants.comparisons`), each with a grid of four settings. Data, network and steps are those of
`m3g reproduce views`. The grid is tried on one split; the chosen settings are compared on the validation rows of other
splits. Test rows are not looked at.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from m3g.experiments.engine.names import NAMES
from m3g.experiments.engine.spec import Experiment, Request, Result, RunSpec, Settings
from m3g.experiments.output.comparison import Difference, paired
from m3g.experiments.output.tables import hours, markdown, percent
from m3g.experiments.runner.arms import try_all
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.variants.comparisons import Compared, SoftTargets
from m3g.experiments.variants.epsilon import Annealed, Learned, Several
from m3g.experiments.views import runs as views
from m3g.experiments.views.metrics import recall_from_rest, validation
from m3g.experiments.views.sets import SETS, prepare_sets
from m3g.losses import M3GLoss, ViewLoss
from m3g.training.runs.files import write_text

DATA = ("scenes", "leaves", "digits", "reuters", "sleep", "tumours", "proteins")
SPLITS = (101, 102, 103)  # neither the split of the grids of `views` nor those of its tables


TWO_VIEWS = (0.05, 0.1, 0.2, 0.4)  # the cost of two views is spread more widely than that of more
GRIDS: dict[str, list[Settings]] = {
    "fixed": [{"epsilon": value} for value in (0.02, 0.05, 0.1, 0.2)],
    "learned": [{"floor": value} for value in (0.005, 0.02, 0.05, 0.1)],
    "several": [{"epsilons": values} for values in ([0.02, 0.1], [0.02, 0.2], [0.05, 0.2], [0.02, 0.05, 0.1, 0.2])],
    "annealed": [{"ends": ends} for ends in ([0.2, 0.02], [0.2, 0.05], [0.1, 0.02], [0.02, 0.2])],
    "pairs": [{"epsilon": value} for value in TWO_VIEWS],
    "rest": [{"epsilon": value} for value in TWO_VIEWS],
    "pairs-rest": [{"epsilon": value} for value in TWO_VIEWS],
    "pairs-rest-rising": [{"epsilon": 0.04, "final_epsilon": value} for value in (0.1, 0.2, 0.4, 0.8)],
    "soft": [{"epsilon": epsilon, "weight": weight} for epsilon in (0.05, 0.1) for weight in (0.1, 0.3)],
}
PARTS = {
    "pairs": ("pairs",),
    "rest": ("rest",),
    "pairs-rest": ("pairs", "rest"),
    "pairs-rest-rising": ("pairs", "rest"),
}  # of the variants that see all views in every step


def build(variant: str, options: Settings, steps: int) -> ViewLoss:
    """The loss of a variant; "fixed" is M3G as it is."""
    if variant == "fixed":
        return M3GLoss(**options)
    if variant == "annealed":
        return Annealed(steps=steps, **options)
    if variant in PARTS:
        return Compared(PARTS[variant], **options)
    others: dict[str, Callable[..., ViewLoss]] = {"learned": Learned, "several": Several, "soft": SoftTargets}
    return others[variant](**options)


def _run(data: str, variant: str, seed: int, request: Request) -> RunSpec:
    config = views.config(data, "m3g", seed=seed, steps=3 if request.miniature else views.STEPS)
    if variant in PARTS:
        config |= {"views_per_step": len(SETS[data].views), "subsets_per_step": 1}
    labels = {"data": data, "arm": variant, "seed": seed, "stage": "compared"}
    return RunSpec("variants", {"config": config, "data": data, "variant": {"name": variant}}, labels)


def _runs(request: Request) -> Iterator[RunSpec]:
    for data in (name for name in SETS if name in DATA or request.miniature):
        for variant in filter(request.wants, GRIDS):
            changes = [{f"variant.{k}": v for k, v in options.items()} for options in GRIDS[variant]]

            def tried(_: Settings, data: str = data, variant: str = variant) -> list[RunSpec]:
                return [_run(data, variant, views.TUNING_SEED, request)]

            runs_, candidates = try_all(changes, tried)
            yield from runs_
            for seed in SPLITS[: request.seeds]:
                run = _run(data, variant, seed, request)
                yield RunSpec("variants", run.settings, run.labels, candidates)


def runs(request: Request) -> list[RunSpec]:
    return list(_runs(request))


def work(settings: Settings, folder: Path, data: Path) -> dict[str, Any]:
    """Train with the variant, and measure on the validation rows."""
    config, options = config_of(settings), dict(settings["variant"])
    loss = build(options.pop("name"), options, config.loop.max_steps or 1)
    module, views_data = fit_quickly(config, folder, stacked=True, loss=loss)
    train, held_out = (views.embedded(module.net, views_data, split) for split in ("train", "val"))
    by_class = SETS[settings["data"]].by_class
    found: dict[str, Any] = validation(train, held_out, by_class=by_class)
    found["recall_rest"] = recall_from_rest(held_out, by_class=by_class)
    return found | ({"epsilon": float(loss.epsilon().detach())} if isinstance(loss, Learned) else {})


NUMBERS = {
    "linear_mean": "linear probe",
    "moved": "moved probe",
    "recall": "retrieval",
    "validation": "mean of the three",
    "recall_rest": "retrieval from all other views",
}


def collect(results: list[Result], folder: Path) -> str:
    """Every variant minus the fixed epsilon, over data sets and splits."""
    compared = [row for row in results if row["labels"]["stage"] == "compared"]
    scores = {
        name: {
            variant: {
                (row["labels"]["data"], row["labels"]["seed"]): row["metrics"][name]
                for row in compared
                if row["labels"]["arm"] == variant and name in row["metrics"]
            }
            for variant in GRIDS
        }
        for name in NUMBERS
    }
    sets = list(dict.fromkeys(row["labels"]["data"] for row in compared))
    parts = [hours(results)]
    rows = [["variant minus fixed", *NUMBERS.values(), "pairs"]]
    for variant in GRIDS:
        if variant != "fixed" and scores["validation"][variant]:
            found = [paired(scores[name][variant], scores[name]["fixed"]) for name in NUMBERS]
            rows.append([variant, *map(_difference, found), str(found[0].pairs)])
    parts += ["## Points on validation rows, paired over data sets and splits", markdown(rows)]
    for name, title in NUMBERS.items():
        rows = [[f"{title}, %", *sets]]
        for variant, by in scores[name].items():
            if by:
                rows.append([variant, *(percent([v for (d, _), v in by.items() if d == data]) for data in sets)])
        parts += [f"## {title[0].upper()}{title[1:]}", markdown(rows)]
    parts += ["## Chosen settings", markdown(_chosen(compared, sets))]
    text = "\n\n".join(parts)
    write_text(folder / "table.md", text + "\n")
    return text


def _difference(found: Difference) -> str:
    return f"{100 * found.mean:+.2f} ± {100 * found.half_width:.2f} {found.verdict}" if found.pairs else "—"


def _chosen(compared: list[Result], sets: list[str]) -> list[list[str]]:
    rows = [["", *sets]]
    for variant in GRIDS:
        cells = []
        for data in sets:
            mine = [row for row in compared if (row["labels"]["arm"], row["labels"]["data"]) == (variant, data)]
            names = {str(next(iter(row["chosen"].values()))) for row in mine}
            ends = [row["metrics"]["epsilon"] for row in mine if "epsilon" in row["metrics"]]
            learned = f", ends at {statistics.fmean(ends):.3f}" if ends else ""
            cells.append(", ".join(sorted(names)) + learned or "—")
        rows.append([variant, *cells])
    return rows


def prepare(source: Path | None, target: Path, request: Request) -> None:
    prepare_sets(source, target, [name for name in SETS if name in DATA or request.miniature])


EXPERIMENT = Experiment(
    name="variants",
    about=NAMES["variants"],
    runs=runs,
    work=work,
    collect=collect,
    prepare=prepare,
    methods=tuple(GRIDS),
    seconds=4.0,
)
