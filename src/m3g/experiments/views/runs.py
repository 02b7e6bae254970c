"""Comparison of k-view losses on real data.

`m3g reproduce views --data SETS`: 4545 runs on fifteen sets (7 hours on one core). Without
`--data`, only the built-in digits are used. Expected: M3G, InfoNCE and VICReg in the top group.

Every loss of `m3g losses` trains the same small network (an MLP per view) on real sets of k = 2 to 12 views, with the
same optimiser, number of steps and points per batch; M3G also with increasing epsilon. Each arm has a grid of six
settings, evaluated with a seed and a split that no table contains. The best setting on its validation rows is then used
on five other splits and evaluated on their test rows. Baselines are the inputs, their principal components, linear CCA
of k views, and the same network trained on all labels. For M3G and InfoNCE, the points per batch are also tuned: 16, 32
or 64, with the best setting for 32.

The runs are ordered such that partial results are useful:

1. M3G, InfoNCE and the baselines on all sets without images;
2. the other losses, one by one;
3. M3G, InfoNCE and `m3g-pairs` with half of the training entries missing; M3G (up to five views) and InfoNCE with a
   tuned batch size; M3G, InfoNCE and the baselines on the digits with three to five of their views;
4. on two sets, some losses with 128 objects per batch, with 1000 steps (all losses on the scenes), or without their
   remedies;
5. the same on the sets of images (`by_class`), which take as long as all others together.

Data sets are in `m3g.experiments.views.sets`, grids in `m3g.experiments.views.grids`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import normalize

from m3g.data import ViewsData
from m3g.data.splits import SPLITS, Split
from m3g.evaluation import CanonicalViews, Embedded
from m3g.experiments.engine.spec import Candidate, Change, Experiment, Request, RunSpec, Settings
from m3g.experiments.runner.arms import grid_runs, other_lengths
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.views import sets as view_sets
from m3g.experiments.views import tables as views_tables
from m3g.experiments.views.added import extend
from m3g.experiments.views.baselines import BASELINES, baseline
from m3g.experiments.views.grids import BIAS, FIXED, GRIDS, LOSS_OF, READOUT
from m3g.experiments.views.metrics import Scores, measure, validation
from m3g.experiments.views.scores import BATCH
from m3g.experiments.views.sets import SETS
from m3g.nets import MultiViewNet
from m3g.training.loop.nonfinite import NonFiniteLoss

Candidates = tuple[Candidate, ...]
TUNING_SEED = 100
POINTS, STEPS = 32, 200
OTHER_POINTS = (16, 64)
MAX_VIEWS_OF_BATCHES = 5  # with more views, a run of M3G with 64 points takes minutes
MISSING_IN_TRAINING = 0.5
MAIN = ("m3g", "infonce-pwe", "infonce-ave")
# Controls on two sets: larger batches (not for M3G, which has 128^6 tuples on the digits), longer runs, and losses
# without the remedies of `m3g.experiments.views.grids` (arms "plain").
CONTROL_SETS = ("digits", "scenes")
LARGE_BATCH, LARGE_BATCH_LOSSES = 128, ("infonce-pwe", "infonce-ave", "m3g-pairs", "mcca")
MORE_STEPS, REMEDIED = 1000, ("gram", "symile", "pmrl", "mcca")
LENGTHS, LENGTHS_ON = (50, 100, 500, 2000), "scenes"


def config(data: str, arm: str, *, seed: int, steps: int = STEPS) -> Settings:
    """Return the differences of a run from the defaults of `m3g train`."""
    about, loss = SETS[data], LOSS_OF.get(arm, arm)
    file = f"{{data}}/{data}.npz"
    options: Settings = {
        "paths": [f"{file}:{view}" for view in about.views],
        "view_names": list(about.views),
        "val": 0.2,
        "test": 0.2,
        "batch_size": POINTS,
        "split_seed": seed + 1,
    }
    options |= {"labels": f"{file}:label"} if about.labels else {}
    options |= {"groups": f"{file}:group"} if about.groups else {}
    settings: Settings = {
        "data": "arrays",
        "data_options": options,
        "encoder_options": {"width": 64},
        "heads": {"embedding_size": 32, "hidden": None},
        "loss": loss,
        "loss_options": dict(FIXED.get(arm, {})),
        "optim": {"learning_rate": 2e-3},
        "loop": {"epochs": 1000, "max_steps": steps, "accelerator": "cpu", "evaluate_every": 0},
        "seed": seed,
    }
    if loss == "m3g":
        settings |= {"views_per_step": len(about.views)}  # all, also where the default of `m3g train` is subsets
    elif loss == "kl" and len(about.views) > 4:
        settings |= {"views_per_step": 4, "subsets_per_step": 4}  # the divergence of pairs takes O(n^(k-1)) memory
    if loss.startswith("byol"):
        settings |= {"teacher": {"enabled": True, "momentum": 0.99}}
        settings["heads"]["predictor"] = True
    if arm in BIAS:
        settings["heads"]["bias"] = BIAS[arm]
    return settings


def applies(data: str, loss: str) -> bool:
    """Return whether a loss applies to a data set: a triangle requires three views."""
    return loss != "triangle" or len(SETS[data].views) == 3


def _run(data: str, arm: str, loss: str, seed: int, request: Request, *, baseline: str | None = None) -> RunSpec:
    settings = {"config": config(data, loss, seed=seed, steps=3 if request.miniature else STEPS), "data": data}
    stage = "grid" if seed == TUNING_SEED else "test"
    settings |= {"stage": stage} | ({"baseline": baseline} if baseline else {})
    settings |= {"readout": {"canonical": READOUT[loss]}} if loss in READOUT else {}
    return RunSpec("views", settings, {"data": data, "arm": arm, "seed": seed, "stage": stage})


def _tuned(data: str, loss: str, request: Request) -> tuple[list[RunSpec], Candidates]:
    return grid_runs(GRIDS[loss], [_run(data, loss, loss, TUNING_SEED, request)])


def _block(data: str, loss: str, request: Request) -> Iterator[RunSpec]:
    """Yield the grid of a loss on a data set, then its runs with the best setting."""
    if request.wants(loss) and applies(data, loss):
        runs, candidates = _tuned(data, loss, request)
        yield from runs
        for seed in range(request.seeds):
            yield replace(_run(data, loss, loss, seed, request), candidates=candidates)


def runs(request: Request) -> Iterator[RunSpec]:
    """Yield the main losses and the baselines on all sets, then the other losses, then the controls."""
    for by_class in (False, True):
        sets = [name for name, about in SETS.items() if about.by_class == by_class]
        whole, parts = ([name for name in sets if SETS[name].part == part] for part in (False, True))
        for data in whole:
            yield from _first(data, request)
        for loss in (loss for loss in GRIDS if loss not in MAIN):
            for data in whole:
                yield from _block(data, loss, request)
        for data in whole:
            if len(SETS[data].views) > 2 and not SETS[data].gaps:  # removing half of two views leaves no pair
                for loss in (*MAIN, "m3g-pairs"):
                    change = {"config": {"data_options": {"absent": MISSING_IN_TRAINING}}}
                    yield from _as_chosen(data, loss, "missing in training", change, request)
        for data in whole:
            for loss in filter(request.wants, MAIN):
                if loss != "m3g" or len(SETS[data].views) <= MAX_VIEWS_OF_BATCHES:
                    yield from _with_batch(data, loss, request)
        for data in parts:
            yield from _first(data, request)
        for data in (data for data in whole if data in CONTROL_SETS):
            for loss in REMEDIED:
                plain: Settings = {"plain": True, "config": {"heads": {"bias": None}}}
                yield from _as_chosen(data, loss, "plain", plain, request)
            for loss in LARGE_BATCH_LOSSES:
                change = {"config": {"data_options": {"batch_size": LARGE_BATCH}}}
                yield from _as_chosen(data, loss, f"{LARGE_BATCH} objects", change, request)
            for loss in GRIDS if data == LENGTHS_ON else (*REMEDIED, *MAIN):
                change = {"config": {"loop": {"max_steps": MORE_STEPS}}}
                yield from _as_chosen(data, loss, f"{MORE_STEPS} steps", change, request)
        for data in (data for data in whole if data == LENGTHS_ON):
            for loss in filter(request.wants, MAIN):
                _, candidates = _tuned(data, loss, request)
                run = replace(_run(data, loss, loss, 0, request), candidates=candidates)
                yield from other_lengths(run, request, LENGTHS)


def _first(data: str, request: Request) -> Iterator[RunSpec]:
    for loss in MAIN:
        yield from _block(data, loss, request)
    yield from _baselines(data, request)


def _baselines(data: str, request: Request) -> Iterator[RunSpec]:
    for name in filter(request.wants, BASELINES):
        if SETS[data].labels or name == "linear-mcca":
            for seed in range(request.seeds):
                yield _run(data, name, "infonce-pwe", seed, request, baseline=name)


def _as_chosen(data: str, loss: str, name: str, change: Settings, request: Request) -> Iterator[RunSpec]:
    """Yield the runs of a control: a loss with its best setting under other conditions."""
    if request.wants(loss):
        _, candidates = _tuned(data, loss, request)
        for seed in range(request.seeds):
            run = _run(data, f"{loss}, {name}", loss, seed, request).with_changes(change)
            yield replace(run, candidates=candidates)


def _with_batch(data: str, loss: str, request: Request) -> Iterator[RunSpec]:
    """Yield the runs that tune the points per batch, given the best setting of the loss."""
    arm = f"{loss}, batch chosen"
    _, candidates = _tuned(data, loss, request)
    tuning = replace(_run(data, arm, loss, TUNING_SEED, request), candidates=candidates)
    runs, then = grid_runs([{BATCH: n} for n in OTHER_POINTS], [tuning])
    yield from runs
    for seed in range(request.seeds):
        yield replace(_run(data, arm, loss, seed, request), candidates=candidates, then=then)


def work(settings: Settings, folder: Path, data: Path) -> Mapping[str, float | str | Scores]:
    """Train and evaluate: runs of a grid on validation rows, others also on test rows."""
    run, by_class = config_of(settings), SETS[settings["data"]].by_class
    if "baseline" in settings:
        views_data, parts = baseline(settings["baseline"], run)
        shared = settings["baseline"] in ("linear-mcca", "supervised")
        seen = {split: _points(views_data, split, parts[split], shared=shared) for split in SPLITS}
        return measure(seen["train"], seen["test"], by_class=by_class, seed=run.seed)
    try:
        module, views_data = fit_quickly(run, folder, stacked=True)
    except NonFiniteLoss as error:
        return {"validation": 0.0, "diverged": str(error).splitlines()[0][:200]}
    seen = {split: embedded(module.net, views_data, split) for split in SPLITS}
    if settings.get("readout", {}).get("canonical") and not settings.get("plain"):
        seen = read_out(seen)
    readout = module.loss.readout or "mean"
    scores = validation(seen["train"], seen["val"], by_class=by_class, readout=readout)
    if settings["stage"] == "grid":
        return scores
    tested = measure(seen["train"], seen["test"], by_class=by_class, seed=run.seed, readout=readout)
    return {**tested, "validation": scores["validation"]}


@torch.no_grad()
def embedded(net: MultiViewNet, data: ViewsData, split: Split) -> Embedded:
    """Return a split embedded by a trained network."""
    return _points(data, split, list(net(data.arrays(split)[0])), shared=True)


def read_out(seen: dict[Split, Embedded]) -> dict[Split, Embedded]:
    """Return the views of every split, mapped by linear CCA of the embeddings of the training rows."""
    maps = CanonicalViews(list(seen["train"].views), seen["train"].mask)
    return {
        split: replace(points, embeddings=normalize(torch.stack(maps(list(points.views))), dim=-1))
        for split, points in seen.items()
    }


def _points(data: ViewsData, split: Split, views: list[torch.Tensor], *, shared: bool) -> Embedded:
    _, mask, labels = data.arrays(split)
    if shared:
        return Embedded(normalize(torch.stack(views), dim=-1), labels=labels, mask=mask)
    return Embedded(features=views, labels=labels, mask=mask)


EXPERIMENT = Experiment(
    name="views",
    runs=runs,
    work=work,
    collect=views_tables.collect,
    sets=view_sets.sets,
    extend=extend,
    methods=ChainMap[str, list[Change]]({name: [] for name in BASELINES}, GRIDS),  # includes additions by `--add`
    seconds=3.0,
    seeds={"laptop": 5},
)
