"""Unseen domains (the paper's Table 2, Figures 3 and A1).

`m3g reproduce domainnet --data SETS --sets fonts pacs --seeds 3`: 337 runs, most of 1000 steps, 55 minutes on one
core. Expected, mean over unseen domains: fonts M3G 69.3 %, InfoNCE 70.4 to 70.8 %, BYOL 68.2 to 68.3 %; PACS 31 to
33 % for all.

A network is trained on class-aligned batches of all domains but one. A linear probe of its features, trained on all
seen domains, is tested on the unseen one, and so are probes trained on a single seen domain.

Laptop scale: 62 characters in five styles of fonts (n = 16), and trees of `domain/class/image` as histograms of edges:
PACS (n = 7, the number of its classes), Office-Home and DomainNet (40 classes, n = 16). Paper scale: DomainNet,
ViT-B/16, 6 domains x 6 arms x 4 seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from m3g.data import DomainArrays
from m3g.data.splits import Split
from m3g.evaluation import Probe, effective_rank
from m3g.experiments.domainnet import tables as domain_tables
from m3g.experiments.engine.spec import Experiment, Labels, Prepare, Request, RunSpec, Settings, merged
from m3g.experiments.runner import full
from m3g.experiments.runner.arms import TEMPERATURES, Tuned, temperature_then_rate
from m3g.experiments.runner.references import REFERENCES, Network, fit_or_reference, reference_runs
from m3g.experiments.sources.images import STYLES, TREES, check_paper_domains, prepare_fonts, prepare_tree

METHODS = ("m3g", "infonce-ave", "infonce-pwe", "byol-ave", "byol-pwe")
RATES = (1e-2, 3e-3, 3e-2)  # temperatures are compared at the first rate
# Extended by 1.0, because the largest value of the common grid was chosen on the fonts.
WIDE_TEMPERATURES = (*TEMPERATURES, 1.0)
STEPS = 1000
LENGTHS = (200, 3000)  # other numbers of steps, for the methods `LENGTHS_OF`
LENGTHS_OF = ("m3g", "infonce-pwe")
DOMAINS = {"fonts": STYLES, **{name: tree.domains for name, tree in TREES.items()}}
FILES = {"fonts": "fonts.npz", **{name: f"{name}_edges.npz" for name in TREES}}
# Held-out domains of the grids, and of the control arms.
TUNED_ON = {"fonts": "display", "pacs": "sketch", "office-home": "Clipart", "domainnet-small": "sketch"}
CONTROLLED_ON = ("display", "handwriting")
TUNING_SEED = 100
# Maximum number of training images per class and domain of the laptop probes.
SHOTS = {"fonts": 8, "pacs": 100, "office-home": 20, "domainnet-small": 20}
MAX_TEST_IMAGES = 2000  # of a laptop probe

# Control arms on two held-out styles of fonts: their changes, and the methods to which they apply.
CONTROLS: dict[str, tuple[Settings, tuple[str, ...]]] = {
    "no teacher": (
        {"teacher": {"enabled": False}, "heads": {"predictor": False}},
        ("m3g", "infonce-ave", "infonce-pwe"),
    ),
    "no teacher, both directions": (
        {"teacher": {"enabled": False}, "heads": {"predictor": False}, "loss_options": {"symmetric": True}},
        ("infonce-pwe",),
    ),
    "n = 8": ({"data_options": {"batch_size": 8}}, ("m3g", "infonce-ave", "infonce-pwe")),
    "n = 32": ({"data_options": {"batch_size": 32}}, ("infonce-ave", "infonce-pwe")),
}
# Not chosen on validation rows: the paper's epsilon in both scales, and common temperatures of pairwise InfoNCE.
UNTUNED: dict[str, tuple[Settings, str]] = {
    "epsilon 0.05, untuned": ({"epsilon": 0.05}, "m3g"),
    "epsilon 0.05 in the scale of Algorithm 2, untuned": ({"epsilon": 0.05, "cost": "cv-algorithm2"}, "m3g"),
    "temperature 0.1, untuned": ({"temperature": 0.1}, "infonce-pwe"),
    "temperature 0.5, untuned": ({"temperature": 0.5}, "infonce-pwe"),
}


def laptop_config(data: str, method: str, held_out: str, *, seed: int, steps: int) -> Settings:
    """Return the differences from the defaults of `m3g train`: a small network, student and teacher."""
    n = 7 if data == "pacs" else 16
    config = {
        "data": "domain-arrays",
        "data_options": {
            "path": f"{{data}}/{FILES[data]}",
            "held_out": [held_out],
            "batch_size": n,
            "points_per_epoch": n * steps,
            "val": 0.2,
            "test": 0.0,
            "split_seed": seed,
        },
        "encoder": "conv",
        "encoder_options": {"channels": [8, 16, 32], "pool": 2},
        "loss": method,
        "heads": {"embedding_size": 64, "hidden": 256, "predictor": True},
        "teacher": {"enabled": True},
        "optim": {"warmup_epochs": 0.1, "learning_rate": RATES[0]},
        "loop": {"epochs": 1, "evaluate_every": 0, "log_every": 100, "accelerator": "cpu"},
        "seed": seed,
    }
    if data in TREES:  # histograms of edges: neither shifts nor convolutions apply
        config["encoder"], config["encoder_options"] = "mlp", {"width": 128}
        config = merged(config, {"data_options": {"shift": 0}})
    return config


def laptop_runs(request: Request) -> Iterator[RunSpec]:
    """Yield, for every data set: the grids, the first three seeds, the references, and the other seeds.

    For fonts, the other seeds are preceded by runs with other numbers of steps and by the control arms.
    """
    rates = RATES[:1] if request.miniature else RATES
    for data, domains in DOMAINS.items():
        tuned: dict[str, Tuned] = {}
        for method in filter(request.wants, METHODS):
            tuning = _run(data, method, TUNED_ON[data], TUNING_SEED, request)
            has_temperature = not method.startswith("byol")
            tuned[method] = temperature_then_rate(
                tuning, rates, has_temperature=has_temperature, temperatures=WIDE_TEMPERATURES
            )
            yield from tuned[method].runs
        main = [
            grid.chosen(_run(data, method, held_out, seed, request))
            for seed in range(request.seeds)
            for held_out in domains
            for method, grid in tuned.items()
        ]
        cut = 3 * len(domains) * len(tuned)
        yield from main[:cut]

        def reference(name: str, seed: int, data: str = data, domains: Sequence[str] = domains) -> list[RunSpec]:
            held_out = (TUNED_ON[data],) if seed == TUNING_SEED else domains
            return [_run(data, "m3g", one, seed, request, reference=name) for one in held_out]

        yield from reference_runs(reference, request, tuning_seed=TUNING_SEED, rates=rates)
        if data == "fonts":
            yield from _control_runs(request, tuned, seeds=min(request.seeds, 3))
        yield from main[cut:]


def _control_runs(request: Request, tuned: Mapping[str, Tuned], *, seeds: int) -> Iterator[RunSpec]:
    for method in filter(tuned.__contains__, LENGTHS_OF):
        for steps in LENGTHS:
            run = _run("fonts", method, TUNED_ON["fonts"], 0, request, extra={"steps": steps}, stage="length")
            yield tuned[method].chosen(run.with_changes(steps=steps))
    for seed in range(seeds):
        for held_out in CONTROLLED_ON:
            for control, (change, methods) in CONTROLS.items():
                for method in filter(tuned.__contains__, methods):
                    run = _run("fonts", method, held_out, seed, request, stage="control", control=control, extra=change)
                    yield tuned[method].chosen(run)
            for control, (options, method) in UNTUNED.items():
                if method in tuned:
                    change = {"loss_options": options, "optim": {"learning_rate": RATES[0]}}
                    yield _run("fonts", method, held_out, seed, request, stage="control", control=control, extra=change)


def _run(
    data: str,
    method: str,
    held_out: str,
    seed: int,
    request: Request,
    *,
    extra: Settings | None = None,
    stage: str = "test",
    control: str = "",
    reference: str = "",
) -> RunSpec:
    change = dict(extra or {})
    steps = change.pop("steps", STEPS)
    steps = steps // 50 if request.miniature else steps
    config = merged(laptop_config(data, method, held_out, seed=seed, steps=steps), change)
    config["data_options"]["points_per_epoch"] = steps * config["data_options"]["batch_size"]
    labels: Labels = {
        "data": data, "arm": method, "held_out": held_out, "seed": seed, "stage": stage, "control": control,
    }  # fmt: skip
    run = RunSpec("domainnet", {"config": config}, labels)
    return run.with_changes({"reference": reference}, arm=reference, stage="reference") if reference else run


def paper_runs(request: Request) -> Iterator[RunSpec]:
    """Yield the runs on DomainNet with the paper's recipe, for the arms of `full.paper_arms`."""
    for seed in range(request.seeds):
        for held_out in DOMAINS["domainnet-small"]:
            for arm, (method, options) in full.paper_arms(METHODS, epsilon=0.05).items():
                if not request.wants(arm):
                    continue
                config = merged(
                    full.shipped("domainnet"),
                    {"loss": method, "loss_options": options, "seed": seed,
                     "data_options": {"root": "{data}", "held_out": [held_out]}},
                )  # fmt: skip
                labels: Labels = {
                    "data": "domainnet", "arm": arm, "held_out": held_out, "seed": seed, "stage": "test", "control": "",
                }  # fmt: skip
                yield RunSpec("domainnet", {"config": config}, labels)


def runs(request: Request) -> Iterator[RunSpec]:
    return paper_runs(request) if request.scale == "paper" else laptop_runs(request)


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float | dict[str, float]]:
    """Train, and evaluate probes on the unseen domain; at laptop scale also on validation images of the seen domains.

    At laptop scale, a probe is tested on at most `MAX_TEST_IMAGES` images, drawn with the seed.
    """
    config = full.config_of(settings)
    if "path" not in config.data_options:
        return full.domain_metrics(config, folder)
    name = next(name for name, file in FILES.items() if str(config.data_options["path"]).endswith(file))
    net, views = fit_or_reference(config, settings.get("reference"), folder)
    assert isinstance(views, DomainArrays)
    return measure(net, views, shots=SHOTS[name], seed=config.seed)


@torch.no_grad()
def measure(net: Network, data: DomainArrays, *, shots: int, seed: int) -> dict[str, float | dict[str, float]]:
    """Return accuracies of probes trained on all seen domains and on each, and the effective rank of the features.

    The number of test images is also returned.
    """
    train = {name: _features(net, data, name, ("train",), seed, shots=shots) for name in data.view_names}
    seen = [_features(net, data, name, ("val",), seed, most=MAX_TEST_IMAGES // data.k) for name in data.view_names]
    unseen = _features(net, data, data.held_out[0], ("train", "val"), seed, most=MAX_TEST_IMAGES)
    probe = Probe(*_joined(list(train.values())))
    return {
        "validation": probe.accuracy(*_joined(seen)),
        "test": probe.accuracy(*unseen),
        "single": {name: Probe(*train[name]).accuracy(*unseen) for name in data.view_names},
        "effective_rank": effective_rank(_joined(seen)[0].expand(2, -1, -1)),
        "test_images": len(unseen[1]),
    }


def _features(
    net: Network,
    data: DomainArrays,
    domain: str,
    splits: tuple[Split, ...],
    seed: int,
    *,
    shots: int | None = None,
    most: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return features and classes of a domain's images: `shots` per class, or at most `most`, drawn with the seed."""
    parts = [data.domain_rows(domain, split) for split in splits]
    images = torch.cat([part.views[0] for part in parts])
    labels = torch.cat([part.label for part in parts if part.label is not None])
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    if shots is not None:
        order = torch.cat([order[labels[order] == kind][:shots] for kind in torch.unique(labels)])
    order = order[:most]
    net.eval()
    return torch.cat([net.features([images[rows]])[0] for rows in order.split(512)]), labels[order]


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def sets(scale: str) -> dict[str, Prepare]:
    """Return a preparation function per data set: fonts and trees of `domain/class/image`; at paper scale DomainNet."""
    if scale == "paper":
        return {"domainnet": check_paper_domains}
    return {"fonts": prepare_fonts, **{name: partial(prepare_tree, name) for name in TREES}}


EXPERIMENT = Experiment(
    name="domainnet",
    runs=runs,
    work=work,
    collect=domain_tables.collect,
    sets=sets,
    methods=(*METHODS, full.ALGORITHM_2, *REFERENCES),
    seconds=15.0,
    seeds={"laptop": 5, "paper": 4},
)
