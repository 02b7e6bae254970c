"""Can M3G choose its epsilon better than a grid does? `m3g reproduce variants`.

Three ideas beside the fixed epsilon, each with a grid of four settings: epsilon learned with the network, the mean of
the divergences at several epsilons, and an epsilon that falls or rises during training. Data, network and steps are
those of `m3g reproduce views`. The grid is tried on one split; the chosen settings are compared on the validation rows
of other splits. Test rows are not looked at.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.experiments import views
from m3g.experiments.arms import try_all
from m3g.experiments.comparison import paired
from m3g.experiments.full import config_of
from m3g.experiments.names import NAMES
from m3g.experiments.quick import fit_quickly
from m3g.experiments.spec import Experiment, Request, Result, RunSpec, Settings
from m3g.experiments.tables import hours, markdown, percent
from m3g.experiments.view_sets import SETS, prepare_sets
from m3g.experiments.views_metrics import validation
from m3g.losses import M3GLoss, ViewLoss
from m3g.training.files import write_text

DATA = ("scenes", "leaves", "digits", "reuters", "sleep", "tumours")
SPLITS = (101, 102, 103)  # neither the split of the grids of `views` nor those of its tables


class VaryingEpsilon(ViewLoss):
    """The divergence gap / epsilon with an epsilon that is a tensor, and so has a gradient.

    The divergence depends on C / epsilon alone, and the circular variance is a square in the vectors: unit vectors
    divided by sqrt(epsilon), at an epsilon of 1, give it together with its gradient in epsilon (Danskin's theorem: that
    of the solution does not count).

    Example:
        >>> import m3g
        >>> x = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> found = VaryingEpsilon().divergence(x, None, torch.tensor(0.1))
        >>> bool(abs(found - m3g.matching_gap(x, epsilon=0.1) / 0.1) < 1e-3)
        True
    """

    takes_batches = True
    visits_all_tuples = True

    def __init__(self) -> None:
        super().__init__()
        self.gap = M3GLoss(1.0, normalize=False)

    def divergence(self, views: Tensor, mask: Tensor | None, epsilon: Tensor) -> Tensor:
        points = _checks.masked_and_scaled(views, mask, normalize=True) / epsilon.sqrt()
        return self.gap(points, mask=mask)


class Learned(VaryingEpsilon):
    """epsilon = floor + exp(RATE s), with s learned; it starts at 0.1 or twice the floor."""

    RATE = 10.0  # 200 small steps of Adam would hardly move s alone

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.exponent = nn.Parameter(torch.tensor(math.log(max(0.1, 2 * floor) - floor) / self.RATE))

    def epsilon(self) -> Tensor:
        return self.floor + (self.RATE * self.exponent).exp()

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        return self.divergence(views, mask, self.epsilon())


class Several(VaryingEpsilon):
    """The mean of the divergences at several epsilons."""

    def __init__(self, epsilons: Sequence[float]) -> None:
        super().__init__()
        self.epsilons = tuple(epsilons)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        parts = [self.divergence(views, mask, views.new_tensor(epsilon)) for epsilon in self.epsilons]
        return torch.stack(parts).mean(0)


class Annealed(VaryingEpsilon):
    """epsilon goes from the first value to the last by equal ratios, one per call."""

    def __init__(self, ends: Sequence[float], steps: int) -> None:
        super().__init__()
        self.ends, self.steps, self.calls = tuple(ends), steps, 0

    def epsilon(self) -> float:
        first, last = self.ends
        return float(first * (last / first) ** min(self.calls / max(self.steps - 1, 1), 1.0))

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        value = self.divergence(views, mask, views.new_tensor(self.epsilon()))
        self.calls += 1
        return value


GRIDS: dict[str, list[Settings]] = {
    "fixed": [{"epsilon": value} for value in (0.02, 0.05, 0.1, 0.2)],
    "learned": [{"floor": value} for value in (0.005, 0.02, 0.05, 0.1)],
    "several": [{"epsilons": values} for values in ([0.02, 0.1], [0.02, 0.2], [0.05, 0.2], [0.02, 0.05, 0.1, 0.2])],
    "annealed": [{"ends": ends} for ends in ([0.2, 0.02], [0.2, 0.05], [0.1, 0.02], [0.02, 0.2])],
}


def build(variant: str, options: Settings, steps: int) -> ViewLoss:
    """The loss of a variant; "fixed" is M3G as it is."""
    if variant == "fixed":
        return M3GLoss(**options)
    if variant == "annealed":
        return Annealed(steps=steps, **options)
    return {"learned": Learned, "several": Several}[variant](**options)


def _run(data: str, variant: str, seed: int, request: Request) -> RunSpec:
    config = views.config(data, "m3g", seed=seed, steps=3 if request.miniature else views.STEPS)
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
    found: dict[str, Any] = validation(
        *(views.embedded(module.net, views_data, split) for split in ("train", "val")),
        by_class=SETS[settings["data"]].by_class,
    )
    return found | ({"epsilon": float(loss.epsilon().detach())} if isinstance(loss, Learned) else {})


NUMBERS = {
    "linear_mean": "linear probe",
    "moved": "moved probe",
    "recall": "retrieval",
    "validation": "mean of the three",
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
            cells = [f"{100 * one.mean:+.2f} ± {100 * one.half_width:.2f} {one.verdict}" for one in found]
            rows.append([variant, *cells, str(found[0].pairs)])
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
