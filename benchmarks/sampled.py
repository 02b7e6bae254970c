"""The sampled solver compared with the exact one: accuracy, coverage of its error estimates, growth, large problems.

    python -m benchmarks sampled                     writes results/sampled.{json,md,png}
    python -m benchmarks sampled --only growth       repeats one part and keeps the results of the others

Views are a shared base plus noise, on the sphere, d = 64 (128 in part "large"). The exact gap and gradient come from a
float64 solve. At epsilon = 0.02, tol is 1e-6, because a batch whose gap is nearly zero has a gradient below the default
tol.
"""

from __future__ import annotations

import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import m3g
from benchmarks.measurement import noisy_views, peak_bytes
from benchmarks.sampled_report import plot, tables
from benchmarks.sampled_training import training
from m3g.losses.m3g import solved_gap
from m3g.solvers import SamplingWarning

SHAPES = [(3, 128), (3, 256), (4, 32), (4, 64), (5, 16), (6, 12)]
NOISES = (0.3, 1.0, 2.0)
EPSILONS = (0.2, 0.05, 0.02)
COVERAGE = [(4, 24, 0.3, 0.05), (3, 48, 1.0, 0.05), (4, 24, 1.0, 0.2), (6, 12, 1.0, 0.02)]
COVERAGE_RANK = 1024
DRAWS = 200
RANKS = (256, 512, 1024, 2048, 4096, 8192)
RANK_CASES = [(3, 128, 0.3, 0.05), (3, 128, 1.0, 0.05), (3, 128, 1.0, 0.2), (4, 32, 1.0, 0.02)]
VIEWS = (3, 4, 6, 8, 12)
POINTS = (128, 256, 512, 1024, 2048)
MANY = [(3, 1024), (3, 4096), (4, 4096), (6, 1024), (6, 4096)]


def gap_and_gradient(views: torch.Tensor, epsilon: float, solver: Any, *, tol: float = 1e-3) -> dict[str, Any]:
    leaf = views.clone().requires_grad_()
    start = time.perf_counter()
    gap, solution = solved_gap(leaf, None, epsilon=epsilon, cost=m3g.CircularVariance(), solver=solver, tol=tol)
    gap.backward()
    seconds = time.perf_counter() - start
    return {"gap": gap.item(), "gradient": leaf.grad.double(), "solution": solution, "seconds": seconds}


def compare(k: int, n: int, noise: float, epsilon: float, *, exact: dict | None = None, **settings: Any) -> dict:
    """Compare one sampled solve with the exact one."""
    views = noisy_views(k, n, noise)
    exact = exact or gap_and_gradient(views.double(), epsilon, m3g.Factored(), tol=1e-8)
    sampled = gap_and_gradient(views, epsilon, m3g.Sampled(**settings), tol=1e-3 if epsilon > 0.02 else 1e-6)
    solution, true = sampled["solution"], exact["gradient"]
    return {
        "k": k,
        "n": n,
        "noise": noise,
        "epsilon": epsilon,
        "gap": exact["gap"],
        "error": sampled["gap"] - exact["gap"],
        "standard_error": float(solution.standard_error),
        "cosine": float(torch.cosine_similarity(sampled["gradient"].flatten(), true.flatten(), dim=0)),
        "relative_gradient_error": float((sampled["gradient"] - true).norm() / true.norm()),
        "estimated_gradient_error": float(solution.relative_gradient_error),
        "form": type(solution.coupling_form).__name__,
        "seconds": sampled["seconds"],
    }


def accuracy() -> list[dict]:
    rows = []
    for k, n in SHAPES:
        for epsilon in EPSILONS:
            for noise in NOISES:
                rows.append(compare(k, n, noise, epsilon, seed=0))
                print(
                    f"  k={k} n={n:<3d} noise={noise} eps={epsilon:<4g} gap {rows[-1]['gap']:.5f} error "
                    f"{rows[-1]['error']:+.5f} ± {rows[-1]['standard_error']:.5f} cosine {rows[-1]['cosine']:.5f}",
                    flush=True,
                )
    return rows


def coverage() -> list[dict]:
    """Measure how often the true gap is within two reported standard errors."""
    rows = []
    for k, n, noise, epsilon in COVERAGE:
        exact = gap_and_gradient(noisy_views(k, n, noise).double(), epsilon, m3g.Factored(), tol=1e-8)
        draws = [compare(k, n, noise, epsilon, exact=exact, rank=COVERAGE_RANK, seed=seed) for seed in range(DRAWS)]
        inside = sum(abs(draw["error"]) <= 2 * draw["standard_error"] for draw in draws) / DRAWS
        row = {"k": k, "n": n, "noise": noise, "epsilon": epsilon, "draws": DRAWS, "within_two": inside}
        for key in ("relative_gradient_error", "estimated_gradient_error"):
            row[key] = sum(draw[key] for draw in draws) / DRAWS
        rows.append(row)
        print(f"  k={k} n={n} noise={noise} eps={epsilon}: within two standard errors {inside:.1%}", flush=True)
    return rows


def error_by_rank() -> list[dict]:
    rows = []
    for k, n, noise, epsilon in RANK_CASES:
        exact = gap_and_gradient(noisy_views(k, n, noise).double(), epsilon, m3g.Factored(), tol=1e-8)
        for rank in RANKS:
            rows.append({"rank": rank, **compare(k, n, noise, epsilon, exact=exact, rank=rank, seed=0)})
    return rows


def best_of(count: int, views: torch.Tensor, solver: Any) -> float:
    return min(gap_and_gradient(views, 0.05, solver)["seconds"] for _ in range(count))


def exact_operations(k: int, n: int) -> float:
    """Return the operations of one step of the exact solver."""
    return m3g.workload(m3g.CircularVariance()(torch.ones(k, n, 1)), solver="factored").flops


def growth() -> list[dict]:
    """Time forward and backward passes by k and by n, at one rank; the exact solver up to 1e11 operations per step."""
    rows = []
    for axis, values in (("k", VIEWS), ("n", POINTS)):
        exact_ends = False
        for value in values:
            k, n = (value, 256) if axis == "k" else (4, value)
            views = noisy_views(k, n, 1.0)
            row: dict[str, Any] = {
                "axis": axis,
                "k": k,
                "n": n,
                "seconds": best_of(3, views, m3g.Sampled(form="products", seed=0)),
            }
            row["exact_operations"] = exact_operations(k, n)
            exact_ends = exact_ends or row["exact_operations"] > 1e11
            row["exact_seconds"] = None if exact_ends else best_of(1, views, m3g.Factored())
            rows.append(row)
            print(f"  {axis}={value}: sampled {row['seconds']:.3f} s, exact {row['exact_seconds']}", flush=True)
    return rows


def large() -> dict:
    """Measure a large problem: k = 12, n = 512, d = 128, 3e32 tuples."""
    views = noisy_views(12, 512, 1.0, d=128)
    before = peak_bytes()
    processor = time.process_time()
    first = gap_and_gradient(views, 0.05, m3g.Sampled(seed=0))
    processor = time.process_time() - processor
    other = gap_and_gradient(views, 0.05, m3g.Sampled(seed=1))
    return {
        "seconds": min(first["seconds"], other["seconds"]),
        "processor_seconds": processor,
        "peak_bytes": peak_bytes(),
        "more_bytes": peak_bytes() - before,
        "gap": first["gap"],
        "standard_error": float(first["solution"].standard_error),
        "cosine_between_draws": float(
            torch.cosine_similarity(first["gradient"].flatten(), other["gradient"].flatten(), dim=0)
        ),
    }


def many_points() -> list[dict]:
    """Measure batches of thousands of points and their reported errors, with at least 4 n samples."""
    rows = []
    for k, n in MANY:
        rank = max(m3g.Sampled().rank, 4 * n)
        solved = gap_and_gradient(noisy_views(k, n, 1.0), 0.05, m3g.Sampled(rank=rank, seed=0))
        row = {"k": k, "n": n, "rank": rank, "gap": solved["gap"], "seconds": solved["seconds"]}
        for name in ("standard_error", "relative_gradient_error"):
            row[name] = float(getattr(solved["solution"], name))
        rows.append(row)
        print(f"  k={k} n={n}: {row['seconds']:.2f} s, gradient error {row['relative_gradient_error']:.3f}", flush=True)
    return rows


PARTS = {
    "large": large,
    "many_points": many_points,
    "growth": growth,
    "accuracy": accuracy,
    "ranks": error_by_rank,
    "coverage": coverage,
    "training": training,
}


def run(results: Path, only: str | None = None) -> None:
    """Measure all parts, or only one and keep the stored results of the others."""
    # Reported errors are recorded whether they are trusted or not.
    warnings.simplefilter("ignore", SamplingWarning)
    path = results / "sampled.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    for part in PARTS if only is None else [only]:
        report[part] = PARTS[part]()
        report[f"{part}_machine"] = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load": os.getloadavg()[0],
            "torch": torch.__version__,
        }
    path.write_text(json.dumps(report, indent=1) + "\n")
    table = tables(report)
    (results / "sampled.md").write_text(table)
    print(table)
    plot(report, results / "sampled.png")
