"""Steps to tolerance against epsilon: Sinkhorn and the factored solver.

`m3g reproduce iterations`: 150 runs, half a minute; no data required. Expected: 1 to about 10 steps of the factored
solver, 5 to several hundred sweeps of Sinkhorn.

The views are partly aligned: k noisy copies of n random vectors, normalised. Sinkhorn (the paper's Algorithm 1)
iterates on the dense tensor. On the same problem, the factored solver executes sweeps and, if these converge slowly,
Newton steps. The steps of a solve that stops before it reaches the tolerance are also counted, and the table marks it
as stopped.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import torch

import m3g
from m3g.evaluation.paired import interval_of_mean
from m3g.experiments.engine.spec import Experiment, Request, Result, RunSpec, Settings
from m3g.experiments.output import figures
from m3g.experiments.output.tables import hours, markdown, write_table

EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.5)
SOLVERS = ("sinkhorn", "factored")
TOLERANCE = 1e-3


def runs(request: Request) -> list[RunSpec]:
    """Return a run for every solver, number of views and epsilon, seed by seed."""
    return [
        RunSpec(
            "iterations",
            {"solver": solver, "k": k, "n": 4 if request.miniature else 16, "d": 64, "epsilon": epsilon, "seed": seed},
            {"arm": solver, "k": k, "epsilon": epsilon, "seed": seed, "stage": "test"},
        )
        for seed in range(request.seeds)
        for k in (2, 3, 4)
        for epsilon in EPSILONS
        for solver in filter(request.wants, SOLVERS)
    ]


def work(settings: Settings, folder: Path, data: Path) -> dict[str, float]:
    """Solve one problem and count the steps."""
    random = torch.Generator().manual_seed(settings["seed"])
    objects = torch.randn(1, settings["n"], settings["d"], generator=random)
    views = objects + torch.randn(settings["k"], settings["n"], settings["d"], generator=random)
    problem = m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1))
    solution = m3g.solve(problem, epsilon=settings["epsilon"], tol=TOLERANCE, solver=settings["solver"])
    return {
        "steps": int(solution.num_steps),
        "converged": bool(solution.converged),
        "error": float(solution.error.max()),
        "value": float(solution.value),
    }


def collect(results: list[Result], folder: Path) -> str:
    """Write a table and a figure of the steps, and the difference between the values of both solvers."""
    groups: dict[tuple[str, int], dict[float, list[Result]]] = {}
    for row in results:
        labels = row["labels"]
        groups.setdefault((labels["arm"], labels["k"]), {}).setdefault(labels["epsilon"], []).append(row)
    rows = [["solver", "k", *(f"epsilon {value:g}" for value in EPSILONS)]]
    lines = {}
    for (solver, k), by_epsilon in sorted(groups.items()):
        cells = []
        for value in EPSILONS:
            steps = [row["metrics"]["steps"] for row in by_epsilon.get(value, [])]
            stopped = sum(not row["metrics"]["converged"] for row in by_epsilon.get(value, []))
            note = f" ({stopped} of {len(steps)} stopped)" if stopped else ""
            cells.append(f"{statistics.fmean(steps):.1f}{note}" if steps else "—")
        rows.append([solver, str(k), *cells])
        lines[f"{solver}, k = {k}"] = {
            value: (statistics.fmean(steps), interval_of_mean(steps))
            for value, steps in (
                (value, [row["metrics"]["steps"] for row in rows_of]) for value, rows_of in by_epsilon.items()
            )
        }
    figures.curves(lines, folder / "iterations", xlabel="epsilon", ylabel="steps to tolerance", logarithmic=True)
    picture = "![Steps to tolerance against epsilon](iterations.png)"
    return write_table([hours(results), markdown(rows), _agreement(results), picture], folder)


def _agreement(results: list[Result]) -> str:
    """Return a sentence with the largest difference between the values of the solvers where both converged, or ""."""
    values: dict[tuple[int, float, int], dict[str, float]] = {}
    for row in results:
        labels = row["labels"]
        if row["metrics"]["converged"]:
            key = (labels["k"], labels["epsilon"], labels["seed"])
            values.setdefault(key, {})[labels["arm"]] = row["metrics"]["value"]
    both = [abs(pair["sinkhorn"] - pair["factored"]) for pair in values.values() if len(pair) == len(SOLVERS)]
    return f"Largest difference between the values if both converged: {max(both):.1e}." if both else ""


EXPERIMENT = Experiment(
    name="iterations",
    runs=runs,
    work=work,
    collect=collect,
    methods=SOLVERS,
    seconds=1.0,
    seeds={"laptop": 5},
)
