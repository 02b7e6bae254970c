"""Plan of an experiment: a settings file per run, and the expected time and memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import yaml

from m3g.experiments.engine.spec import Experiment, Request, Result, RunSpec, Settings, place_files
from m3g.experiments.engine.store import Store
from m3g.experiments.runner.full import PROBE_EPOCHS, config_of
from m3g.experiments.runner.references import REFERENCES
from m3g.losses import M3GLoss
from m3g.solvers import workload
from m3g.training.loop.build import build_loss, subsets
from m3g.training.loop.subsets import sample_if_quicker
from m3g.training.runs.files import write_json, write_text
from m3g.training.settings.config import Config

# Numbers of training rows of sets whose files may be unavailable, and of the built-in set; for `domains`, per domain.
ROWS = {"images": 1_281_167, "domains": 409_832 // 6, "signals": 710_000, "multiple-features": 1400}
MANY_NODES = ("images", "domains")  # kinds of data for which runs at paper scale use NODES x GPUS devices
NODES, GPUS = 4, 8
SOLVER_STEPS = 8  # assumed number of solver steps; `m3g reproduce iterations` measures those of exact solvers
VIT_FLOPS = 2 * 17.6e9  # forward pass of ViT-B/16 on one image of 224 pixels; a multiply-add counts as two
GPU_FLOPS = 312e12 * 0.35  # bf16 throughput of an A100 at typical utilisation
SMALL_STEP = 0.05  # assumed seconds per step of a small network on a GPU


def write_plan(specs: Sequence[RunSpec], store: Store, data: Path) -> None:
    """Write `plan/ID.yaml` for every run, and `plan.json` with the labels of each run and the runs that it needs."""
    store.plan.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        settings = place_files(spec.settings, data)
        first = place_files(spec.resolved(spec.candidates[0].change if spec.candidates else None), data)
        text = config_of(first).to_yaml() if "config" in first else ""
        notes = [
            f"# {spec.experiment}, "
            + ", ".join(f"{name} {value}" for name, value in spec.labels.items() if value != "")
        ]
        if "reference" in spec.settings:
            notes.append(f"# in place of the loss: {REFERENCES[spec.settings['reference']]}")
        if spec.candidates:
            candidates = (*spec.candidates, *spec.then)
            names = ", ".join(sorted({name for candidate in candidates for name in candidate.change}))
            notes.append(f"# {names}: replaced by the best of {len(candidates)} settings on validation rows")
        write_text(store.plan / f"{spec.id}.yaml", "\n".join(notes) + "\n" + (text or yaml.safe_dump(settings)))
    rows = [{"id": s.id, "labels": dict(s.labels), "needs": s.needs} for s in specs]
    write_json(store.path / "plan.json", rows)


def planned(
    experiment: Experiment, results: list[Result], request: Request, specs: Sequence[RunSpec] | None = None
) -> list[Result]:
    """Return the results that belong to the current plan, of all methods and sets.

    The plan has at least the default number of seeds, and all seeds of the results unless `request.seeds` is set.
    Results of an older grid are omitted, because they must not share a table with those of the current one. Labels are
    those of the current plan, because a run may have been executed under another plan. `specs` are the planned runs of
    `request`; they are used only if the request includes all methods, sets and seeds of this plan.
    """
    labels = [row["labels"] for row in results]
    last = max((label["seed"] for label in labels if label.get("stage") != "grid" and "seed" in label), default=0)
    least = experiment.seeds[request.scale]
    full_request = Request(scale=request.scale, seeds=max(request.seeds or last + 1, least))
    if specs is None or replace(request, seeds=request.seeds or least) != full_request:
        specs = experiment.specs(full_request)
    labels_of = {spec.id: spec.labels for spec in specs}
    return [{**row, "labels": labels_of[row["id"]]} for row in results if row["id"] in labels_of]


def loss_cost(config: Config, k: int, n: int) -> tuple[float, float]:
    """Estimate bytes and floating-point operations of the loss in one training step and process.

    M3G with an exact solver solves one problem of n^s tuples per subset of s views; all k views form a single subset if
    that is fast. If the teacher embeds each view in turn, M3G solves s problems per subset. `workload` predicts the
    memory and the operations of a solver step. BYOL is assumed to compare n pairs of points for every view or pair of
    views, and other losses n x n.
    """
    loss = build_loss(config)
    if isinstance(loss, M3GLoss) and loss.visits_all_tuples:
        size, number = subsets(config, loss, k=k, batch_size=n)
        if size == k:
            sample_if_quicker(loss, k=k, n=n)
        step = workload(loss.cost(torch.zeros(size, n, config.heads.embedding_size)), solver=loss.solver.name)
        in_turn = config.teacher.enabled and config.teacher.student_views is None
        solves = number * (size if in_turn else 1)
        return solves * step.bytes, solves * SOLVER_STEPS * step.flops
    pairs = k * (k - 1) if config.loss.endswith("pwe") else k
    square = 1 if config.loss.startswith("byol") else n
    return 4.0 * pairs * n * square, 6.0 * pairs * n * square * config.heads.embedding_size


def num_views(config: Settings) -> int:
    """Return the number of views of a configuration without opening its data."""
    options = config.get("data_options", {})
    if "held_out" in options:
        known = {"fonts": 5, "pacs_edges": 4}.get(Path(str(options.get("path", ""))).stem, 6)
        return known - len(options["held_out"])
    if "k" in options:
        return int(options["k"])
    paths = options.get("paths") or ()
    several = not isinstance(paths, str) and len(paths) > 1
    return len(paths) if several else len(options.get("channels") or range(6))


def num_points(config: Settings) -> int:
    """Return the number n of objects per step and process."""
    return int(config.get("data_options", {}).get("batch_size", 64))


def num_probe_images(config: Settings) -> int:
    """Return the number of images that one epoch of all probes of the paper reads.

    For domains, a joint probe reads all images, and one probe per domain reads those of its domain.
    """
    rows = ROWS[config["data"]]
    return 2 * num_views(config) * rows if config["data"] == "domains" else rows


def num_steps(config: Settings) -> int:
    """Return the number of optimiser steps of a run."""
    options, loop, data = config.get("data_options", {}), config.get("loop", {}), config.get("data", Config.data)
    if loop.get("max_steps"):
        return int(loop["max_steps"])
    batch = num_points(config) * (NODES * GPUS if data in MANY_NODES else 1)
    rows = options.get("points_per_epoch") or ROWS.get(data, 0)
    return int(loop.get("epochs", 20)) * (int(rows) // batch)


def describe(
    experiment: Experiment, specs: Sequence[RunSpec], request: Request, results: dict[str, Result]
) -> list[str]:
    """Return lines with the numbers of runs and steps, the expected hours, and the most expensive case of each loss."""
    done = [spec for spec in specs if spec.id in results]
    left = [spec for spec in specs if spec.id not in results]
    lines = [
        f"runs        {len(specs)}, of which {len(done)} are finished",
        f"            {len([s for s in specs if s.candidates])} of all runs use a setting chosen on validation",
    ]
    trained = [s for s in specs if "config" in s.settings and s.settings.get("reference") != "raw"]
    if trained:
        steps = [num_steps(spec.settings["config"]) for spec in trained]
        lines.append(f"steps       {min(steps):,} to {max(steps):,} per run, {sum(steps):,} in total")
    lines.append(_hours(experiment, left, request, results))
    costs: dict[str, dict[tuple[int, int], tuple[float, float]]] = {}
    for spec in (spec for spec in trained if "reference" not in spec.settings):
        config = spec.settings["config"]
        key = num_views(config), num_points(config)
        loss_costs = costs.setdefault(config.get("loss", "m3g"), {})
        if key not in loss_costs:
            loss_costs[key] = loss_cost(config_of(spec.resolved(None)), *key)
    for loss, loss_costs in sorted(costs.items()):
        (k, n), (size, flops) = max(loss_costs.items(), key=lambda item: item[1][1])
        amount = f"at most {_bytes(size)} and {flops:.1e} operations per step"
        lines.append(f"loss        {loss:12} {amount} (k = {k}, n = {n})")
    return lines


def _hours(experiment: Experiment, left: Sequence[RunSpec], request: Request, results: dict[str, Result]) -> str:
    if request.scale == "paper":
        configs = [spec.settings["config"] for spec in left]
        if not all(config.get("encoder") == "transformers" for config in configs):
            total = sum(num_steps(config) for config in configs) * SMALL_STEP / 3600
            where = f"one GPU, one run after the other (assuming {SMALL_STEP} s per step)"
            return f"hours       about {total:,.0f} on {where}"
        # Forward and backward pass of the student (three times a forward pass), and forward pass of the teacher.
        training = sum(num_steps(c) * 4 * num_views(c) * num_points(c) * VIT_FLOPS for c in configs)
        probes = sum(PROBE_EPOCHS * num_probe_images(c) * VIT_FLOPS for c in configs)
        hours, probe_hours = (flops / GPU_FLOPS / 3600 for flops in (training, probes))
        return (
            f"hours       about {hours:,.0f} on {NODES} nodes x {GPUS} A100, one run after the other (network only, "
            f"35 % of peak), and {probe_hours:,.0f} on one A100 for the probes"
        )
    known = [result["seconds"] for result in results.values()]
    each = statistics.fmean(known) if known else experiment.seconds
    basis = f"{each:.0f} s each, " + (f"the mean of {len(known)} finished runs" if known else "a rough estimate")
    return f"hours       about {len(left) * each / 3600:.1f} on one core for {len(left)} runs ({basis})"


def _bytes(size: float) -> str:
    power = min(int(math.log(max(size, 1), 1024)), 4)
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
