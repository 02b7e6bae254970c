"""Training with the sampled and with the exact solver on the built-in six-view digits.

Part of `python -m benchmarks sampled`. The comparison is that of

    m3g train --encoder mlp --views_per_step 6 --data_options.batch_size 16 --loop.epochs 5
        --loss_options.solver SOLVER --seed SEED

for both solvers and three seeds, without intermediate evaluations, measured on the test split. The large run uses all
six views of 256 points in every step, 3e14 tuples, too many for an exact solver.
"""

from __future__ import annotations

import csv
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from m3g.evaluation import evaluate
from m3g.training import Config, build_data, load, train
from m3g.training.runs.embed import embed

METRICS = ("linear_mean", "linear_transfer", "recall_at_1")
SEEDS = (0, 1, 2)


class StepClock(Callback):
    """Callback that records the seconds of every training step, without data loading."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_batch_start(self, *args: Any) -> None:
        self.start = time.perf_counter()

    def on_train_batch_end(self, *args: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def trained(solver: str, *, n: int, epochs: int, seed: int, max_steps: int | None = None) -> dict[str, Any]:
    """Train on all six views with batches of n points; return losses, seconds per step, and test accuracies."""
    config = Config(views_per_step=6, encoder="mlp", seed=seed)
    config.data_options = {"batch_size": n}
    config.loss_options = {"solver": solver}
    config.loop.epochs, config.loop.max_steps = epochs, max_steps
    config.loop.evaluate_every, config.loop.accelerator = 0, "cpu"
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        run = train(config, Path(folder) / "run", callbacks=[clock])
        losses = [float(row["loss"]) for row in csv.DictReader((run.path / "metrics.csv").open())]
        data, net = build_data(config), load(run.path, scaled=True)
        numbers = evaluate(embed(net, data, "train"), embed(net, data, "test"), polymatching=False).numbers
    return {
        "solver": solver,
        "n": n,
        "seed": seed,
        "steps": len(losses),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "seconds_per_step": statistics.median(clock.seconds),
        **{name: numbers[name] for name in METRICS},
    }


def training(seeds: Sequence[int] = SEEDS, *, epochs: int = 5, max_steps: int | None = None) -> dict[str, Any]:
    runs = []
    for solver in ("factored", "sampled"):
        for seed in seeds:
            runs.append(trained(solver, n=16, epochs=epochs, seed=seed, max_steps=max_steps))
            print(f"  {solver} seed {seed}: " + ", ".join(f"{m} {runs[-1][m]:.4f}" for m in METRICS), flush=True)
    large = trained("sampled", n=256, epochs=2 * epochs, seed=0, max_steps=max_steps)
    print(f"  n = 256: loss {large['first_loss']:.3f} to {large['last_loss']:.3f}", flush=True)
    return {"runs": runs, "summary": {metric: summary(runs, metric) for metric in METRICS}, "large": large}


def summary(runs: list[dict[str, Any]], metric: str) -> dict[str, float]:
    """Return means over the seeds with standard errors, and the same for the difference (sampled - exact)."""
    out: dict[str, float] = {}
    for solver in ("factored", "sampled"):
        values = [run[metric] for run in runs if run["solver"] == solver]
        out[solver] = statistics.fmean(values)
        out[f"{solver}_error"] = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    out["difference"] = out["sampled"] - out["factored"]
    out["difference_error"] = (out["factored_error"] ** 2 + out["sampled_error"] ** 2) ** 0.5
    return out


def verdict(row: dict[str, float]) -> str:
    if abs(row["difference"]) <= row["difference_error"]:
        return "within one standard error"
    return "above by more" if row["difference"] > 0 else "BELOW by more"


def training_table(report: dict[str, Any]) -> str:
    """Return the Markdown tables of the training runs."""
    runs, large = report["runs"], report["large"]
    seeds = sorted({run["seed"] for run in runs})
    lines = [
        "## Training",
        "",
        f"The six-view digits, all views, n = 16, {runs[0]['steps']} steps; test split, {len(seeds)} seeds, mean ± "
        "standard error.",
        "",
        "| | exact | sampled | difference | |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric, row in report["summary"].items():
        lines.append(
            f"| {metric} | {row['factored']:.4f} ± {row['factored_error']:.4f} | {row['sampled']:.4f} ± "
            f"{row['sampled_error']:.4f} | {row['difference']:+.4f} ± {row['difference_error']:.4f} | {verdict(row)} |"
        )
    lines += ["", "| solver | seed | " + " | ".join(METRICS) + " | loss, first and last step | seconds per step |"]
    lines.append("| --- | --- | " + "--- | " * len(METRICS) + "--- | --- |")
    for run in runs:
        lines.append(
            f"| {run['solver']} | {run['seed']} | "
            + " | ".join(f"{run[metric]:.4f}" for metric in METRICS)
            + f" | {run['first_loss']:.3f}, {run['last_loss']:.3f} | {run['seconds_per_step']:.3f} |"
        )
    lines += [
        "",
        f"k = 6, n = {large['n']} ({large['n'] ** 6:.1e} tuples), {large['steps']} steps with the sampled solver: loss "
        f"{large['first_loss']:.3f} at the first step, {large['last_loss']:.3f} at the last; linear_mean "
        f"{large['linear_mean']:.4f}; {large['seconds_per_step']:.2f} s per step.",
    ]
    return "\n".join(lines) + "\n"
