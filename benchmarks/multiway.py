"""Costs that are not sums over pairs: the dense solver, Algorithm 1 and a jitted log-domain Sinkhorn in JAX.

    python -m benchmarks multiway                writes results/multiway.{json,md}

Every program solves the same noisy views (a shared base plus unit noise, on the sphere, d = 64) in float32 to the same
tolerance. `dense` and `sinkhorn` are forward and backward passes of the loss. JAX computes the coupling of a given
cost tensor. `tensor` computes the same coupling with the dense solver, as the gradient with respect to the cost tensor.
The programs of a row run in turns in one process, and their median times are compared. Memory is the peak of the
tensors of `dense`, in units of the cost tensor.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

import m3g
from benchmarks.measurement import live_bytes, noisy_views
from m3g.costs import as_cost

EPSILONS = (0.2, 0.05, 0.02)
SHAPES = [(64, 3), (128, 3), (32, 4), (16, 5)]
COSTS = ("csd", "product")
TOL = 1e-3
# Target speed-up over Algorithm 1, as geometric mean over the rows of an epsilon.
TARGETS = {0.2: 6, 0.05: 20, 0.02: 100}
# Targets: smallest speed-up over Algorithm 1 in a row, speed-up over JAX, time relative to `cv`, memory.
MIN_TARGET, JAX_TARGET, MAX_RATIO_TO_CV, MEMORY = 3, 5, 8, 2
# Seconds above which a program is measured only once.
LONG = 1.0
# The programs of a row run TURNS times, the first of which is not counted. If each takes less than SHORT seconds, a
# median of few turns varies by 20 % between runs, so they run SHORT_TURNS times, without counting the first WARM_UP.
TURNS, SHORT_TURNS, SHORT, WARM_UP = 8, 45, 0.1, 5


def forward_backward(views: Tensor, cost: str, epsilon: float, solver: Any) -> Callable[[], int]:
    loss = m3g.M3GLoss(epsilon, cost=cost, solver=solver, tol=TOL)
    leaf = views.clone().requires_grad_()

    def call() -> int:
        leaf.grad = None
        loss(leaf).backward()
        assert loss.last is not None
        return loss.last.num_steps

    return call


def tensor_and_coupling(cost: Tensor, epsilon: float) -> Callable[[], int]:
    leaf = cost.clone().requires_grad_()

    def call() -> int:
        leaf.grad = None
        solution = m3g.solve(leaf, epsilon=epsilon, tol=TOL, solver="dense", differentiable=True)
        solution.value.backward()
        return solution.num_steps

    return call


def jax_sinkhorn(cost: Tensor, epsilon: float) -> Callable[[], int]:
    """Return Algorithm 1 on a cost tensor, compiled before it is timed; it computes the error every fifth sweep."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    table, k = jnp.asarray(cost.numpy()) / epsilon, cost.ndim
    targets = [jnp.full(n, -math.log(n)) for n in cost.shape]

    def along(part: Any, l: int) -> Any:
        return part.reshape([-1 if axis == l else 1 for axis in range(k)])

    def log_marginal(table: Any, scalings: list[Any], l: int) -> Any:
        exponent = -table
        for m, part in enumerate(scalings):
            exponent = exponent + along(part, m)
        return logsumexp(exponent, axis=tuple(axis for axis in range(k) if axis != l))

    def body(state: Any) -> Any:
        scalings, _, steps, table = state
        for _ in range(5):
            for l in range(k):
                new = scalings[l] + targets[l] - log_marginal(table, scalings, l)
                scalings = [new if m == l else part for m, part in enumerate(scalings)]
        error = sum(
            jnp.abs(jnp.exp(log_marginal(table, scalings, l)) - jnp.exp(target)).sum()
            for l, target in enumerate(targets)
        )
        return scalings, error, steps + 5, table

    @jax.jit
    def solve(table: Any) -> Any:
        start = ([jnp.zeros(n) for n in cost.shape], jnp.inf, 0, table)
        scalings, error, steps, _ = jax.lax.while_loop(lambda state: (state[1] > TOL) & (state[2] < 5000), body, start)
        exponent = -table
        for l, part in enumerate(scalings):
            exponent = exponent + along(part, l)
        return jnp.exp(exponent), error, steps

    def call() -> int:
        coupling, error, steps = solve(table)
        coupling.block_until_ready()
        return int(steps) if float(error) <= TOL else -int(steps)

    call()
    return call


def in_turns(calls: dict[str, Callable[[], int]]) -> dict[str, dict[str, float]]:
    """Return the median seconds and the steps of every program, called in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    steps = {}
    turns = turn = 0
    while turn < max(turns, TURNS):
        for name, call in calls.items():
            if max(times[name], default=0.0) > LONG:
                continue
            start = time.perf_counter()
            steps[name] = call()
            times[name].append(time.perf_counter() - start)
        turn += 1
        if turn == 2 and max(part[-1] for part in times.values()) < SHORT:
            turns = SHORT_TURNS
    first = WARM_UP if turns else 1  # the first calls warm up
    times = {name: part[first:] or part for name, part in times.items()}
    return {name: {"seconds": statistics.median(times[name]), "steps": steps[name]} for name in calls}


def measure(cost: str, n: int, k: int, epsilon: float) -> dict[str, Any]:
    views = noisy_views(k, n)
    tensor = as_cost(cost)(views).dense()[0]
    calls = {
        "dense": forward_backward(views, cost, epsilon, "dense"),
        "sinkhorn": forward_backward(views, cost, epsilon, "sinkhorn"),
        "tensor": tensor_and_coupling(tensor, epsilon),
        "jax": jax_sinkhorn(tensor, epsilon),
    }
    if (cost, n, k) == ("product", 64, 3):
        calls["cv"] = forward_backward(views, "cv", epsilon, "auto")
    row = {"cost": cost, "n": n, "k": k, "epsilon": epsilon, **in_turns(calls)}
    row["memory"] = live_bytes(calls["dense"]) / (tensor.numel() * tensor.element_size())
    dense = row["dense"]["seconds"]
    ratios = ", ".join(f"{name} {_ratio(row, name):.1f}" for name in calls if name != "dense")
    print(
        f"  {cost:8s} n={n:<4d} k={k} eps={epsilon:<5g} {dense * 1e3:8.2f} ms; ratios: {ratios}; "
        f"memory {row['memory']:.2f}",
        flush=True,
    )
    return row


def geometric_mean(numbers: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, numbers)))


def run(results: Path) -> None:
    rows = [measure(cost, n, k, epsilon) for epsilon in EPSILONS for cost in COSTS for n, k in SHAPES]
    machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    (results / "multiway.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    table = as_markdown(rows)
    (results / "multiway.md").write_text(table)
    print(table)


def as_markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "Written by `python -m benchmarks multiway`. Milliseconds are medians of forward and backward passes of the",
        "loss in float32 to a tolerance of 1e-3. `tensor` solves a given cost tensor and computes the gradient with",
        "respect to it, the coupling; JAX computes the same by a jitted log-domain Sinkhorn. The programs of a row",
        "run in turns. A negative number of sweeps means that the tolerance was not reached.",
        "",
        "| cost | n | k | eps | dense ms | steps | sinkhorn ms | sweeps | times faster "
        "| tensor ms | JAX ms | sweeps | times faster | memory / cost tensor |",
        "|---" * 14 + "|",
    ]
    for row in rows:
        ms = {name: f"{row[name]['seconds'] * 1e3:.2f}" for name in ("dense", "sinkhorn", "tensor", "jax")}
        lines.append(
            f"| {row['cost']} | {row['n']} | {row['k']} | {row['epsilon']:g} | {ms['dense']} | {row['dense']['steps']} "
            f"| {ms['sinkhorn']} | {row['sinkhorn']['steps']} | {_ratio(row, 'sinkhorn'):.1f} "
            f"| {ms['tensor']} | {ms['jax']} | {row['jax']['steps']} | {_ratio(row, 'jax'):.1f} "
            f"| {row['memory']:.2f} |"
        )
    lines.append("")
    for epsilon in EPSILONS:
        ratios = [_ratio(row, "sinkhorn") for row in rows if row["epsilon"] == epsilon]
        jax = geometric_mean([_ratio(row, "jax") for row in rows if row["epsilon"] == epsilon])
        lines.append(
            f"Epsilon {epsilon:g} (geometric means): {geometric_mean(ratios):.1f} times faster than `sinkhorn` "
            f"(target: {TARGETS[epsilon]}), in each row at least {min(ratios):.1f} times (target: {MIN_TARGET}); "
            f"{jax:.1f} times faster than JAX."
        )
    jax_mean = geometric_mean([_ratio(row, "jax") for row in rows])
    lines.append(f"All rows: {jax_mean:.1f} times faster than JAX (geometric mean; target: {JAX_TARGET}).")
    to_cv = [row["dense"]["seconds"] / row["cv"]["seconds"] for row in rows if "cv" in row]
    lines.append(
        f"`product` at (64, 3) takes at most {max(to_cv):.1f} times as long as `cv` (target: {MAX_RATIO_TO_CV})."
    )
    memory = max(row["memory"] for row in rows)
    lines.append(f"The dense solver takes at most {memory:.2f} times the memory of the cost tensor (target: {MEMORY}).")
    return "\n".join(lines) + "\n"


def _ratio(row: dict[str, Any], name: str) -> float:
    return float(row[name]["seconds"] / row["tensor" if name == "jax" else "dense"]["seconds"])
