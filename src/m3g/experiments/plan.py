"""The plan of an experiment: one YAML per run, and what the runs will take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from m3g.experiments.full import config_of
from m3g.experiments.spec import Experiment, Request, Result, RunSpec, place_files
from m3g.experiments.store import Store
from m3g.training.files import write_json, write_text

# Images, or windows, of the paper's training sets: what an epoch takes when the files are not here to be counted.
PAPER_ROWS = {"imagenet": 1_281_167, "domainnet": 409_832 // 6, "eeg": 710_000}
NODES, GPUS = 4, 8
SOLVER_STEPS = 8  # sweeps of the exact solver to its tolerance; `m3g reproduce iterations` measures them
VIT_FLOPS = 17.6e9  # forward pass of ViT-B/16 on one image of 224 pixels
GPU_FLOPS = 312e12 * 0.35  # bf16 of an A100 at a usual utilisation


def write_plan(specs: Sequence[RunSpec], store: Store, data: Path) -> None:
    """`plan/ID.yaml` for every run, and `plan.json` with labels and candidates."""
    store.plan.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        settings = place_files(spec.settings, data)
        first = place_files(spec.resolved(spec.candidates[0].change if spec.candidates else None), data)
        text = config_of(first).to_yaml() if "config" in first else ""
        notes = [
            f"# {spec.experiment}, "
            + ", ".join(f"{name} {value}" for name, value in spec.labels.items() if value != "")
        ]
        if spec.candidates:
            tried = (*spec.candidates, *spec.then)
            names = ", ".join(sorted({name for one in tried for name in one.change}))
            notes.append(f"# {names}: replaced by what is best on validation among {len(tried)} settings")
        write_text(store.plan / f"{spec.id}.yaml", "\n".join(notes) + "\n" + (text or yaml.safe_dump(settings)))
    rows = [{"id": s.id, "labels": dict(s.labels), "needs": s.needs} for s in specs]
    write_json(store.path / "plan.json", rows)


def planned(experiment: Experiment, results: list[Result], request: Request) -> list[Result]:
    """The results that belong to today's plan, of all methods and as many seeds as there are.

    Settings that were tried by an older grid must not stand in one table with those of this one. Labels are the plan's:
    a run may have been done under another one.
    """
    labels = [row["labels"] for row in results]
    seeds = [label["seed"] for label in labels if label.get("stage") != "grid" and "seed" in label]
    every = Request(scale=request.scale, seeds=request.seeds or max(seeds, default=0) + 1)
    specs = [*experiment.runs(every), *experiment.runs(Request(scale=request.scale))]
    labels_of = {spec.id: dict(spec.labels) for spec in specs}
    return [{**row, "labels": labels_of[row["id"]]} for row in results if row["id"] in labels_of]


def loss_cost(config: dict[str, Any], k: int) -> tuple[float, float]:
    """Bytes and floating-point operations of the loss in one step and process, in its student–teacher form or not.

    M3G solves k problems of n^k tuples with a teacher (one without), each sweep touching every tuple k times; the
    memory is that of the tuples, were they all held (the factored solver holds less). The others compare n x n points.
    """
    n = int(config.get("data_options", {}).get("batch_size", 64))
    d = int(config.get("heads", {}).get("embedding_size", 64))
    problems = k if config.get("teacher", {}).get("enabled") else 1
    loss = str(config.get("loss", "m3g"))
    if loss in ("m3g", "kl"):
        tuples = float(n) ** k * problems
        return 4 * tuples, 2 * k * SOLVER_STEPS * tuples
    pairs = k * (k - 1) if loss.endswith("pwe") else k
    square = 1 if loss.startswith("byol") else n
    return 4.0 * pairs * n * square, 6.0 * pairs * n * square * d


def views_of(config: dict[str, Any]) -> int:
    """How many views a configuration compares, without opening its data."""
    options = config.get("data_options", {})
    if "held_out" in options:
        known = {"fonts": 5, "pacs": 4}.get(Path(str(options.get("path", ""))).stem, 6)
        return known - len(options["held_out"])
    if "k" in options:
        return int(options["k"])
    paths = options.get("paths") or ()
    return len(paths) if len(paths) > 1 else len(options.get("channels") or range(6))


def steps_of(experiment: Experiment, config: dict[str, Any], request: Request) -> int:
    """Optimiser steps of a run."""
    options, loop = config.get("data_options", {}), config.get("loop", {})
    batch = int(options.get("batch_size", 64))
    if loop.get("max_steps"):
        return int(loop["max_steps"])
    rows = options.get("points_per_epoch")
    if request.scale == "paper":
        rows = rows or PAPER_ROWS.get(experiment.name, 0)
        batch *= NODES * GPUS if experiment.name in ("imagenet", "domainnet") else 1
    return int(loop.get("epochs", 20)) * (int(rows) // batch if rows else 0)


def describe(
    experiment: Experiment, specs: Sequence[RunSpec], request: Request, results: dict[str, Result]
) -> list[str]:
    """Count, steps, hours, and what the loss takes."""
    done = [spec for spec in specs if spec.id in results]
    left = [spec for spec in specs if spec.id not in results]
    lines = [
        f"runs        {len(specs)}, of which {len(done)} are finished",
        f"            {len([s for s in specs if s.candidates])} of them take a setting chosen on validation",
    ]
    with_config = [spec for spec in specs if "config" in spec.settings]
    if with_config:
        steps = [steps_of(experiment, spec.settings["config"], request) for spec in with_config]
        lines.append(f"steps       {min(steps):,} to {max(steps):,} per run, {sum(steps):,} in all")
    lines.append(_hours(experiment, left, request, results))
    seen: dict[tuple[str, int, int], Any] = {}
    for spec in with_config:
        config = spec.settings["config"]
        k = config.get("views_per_step") or views_of(config)
        key = (config.get("loss", "m3g"), k, config.get("data_options", {}).get("batch_size", 64))
        seen.setdefault(key, loss_cost(config, k))
    for (loss, k, n), (size, flops) in sorted(seen.items(), key=str):
        lines.append(
            f"loss        {loss:12} k = {k}, n = {n}: at most {_bytes(size)} and {flops:.1e} operations per step"
        )
    return lines


def _hours(experiment: Experiment, left: Sequence[RunSpec], request: Request, results: dict[str, Result]) -> str:
    if request.scale == "paper":
        total = 0.0
        for spec in left:
            config = spec.settings["config"]
            if config.get("encoder") != "transformers":
                total += steps_of(experiment, config, request) * 0.05 / 3600
                continue
            k, batch = views_of(config), int(config["data_options"]["batch_size"])
            # forward and backward of the student, forward of the teacher, on every view
            total += steps_of(experiment, config, request) * 4 * k * batch * VIT_FLOPS / GPU_FLOPS / 3600
        nodes = f"{NODES} nodes x {GPUS} A100" if experiment.name in ("imagenet", "domainnet") else "one GPU"
        return f"hours       about {total:,.0f} on {nodes}, one run after the other (network only, 35 % of peak)"
    known = [result["seconds"] for result in results.values()]
    each = statistics.fmean(known) if known else experiment.seconds
    basis = f"mean of {len(known)} finished runs" if known else "a guess, none is finished yet"
    return (
        f"hours       about {len(left) * each / 3600:.1f} on one core for {len(left)} runs ({basis}: {each:.0f} s each)"
    )


def _bytes(size: float) -> str:
    power = min(int(math.log(max(size, 1), 1024)), 4)
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
