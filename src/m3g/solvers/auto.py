"""Choosing a solver, and saying beforehand what a solve costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from m3g import _checks
from m3g.costs import PairwiseProblem, Problem
from m3g.solvers.exact import Exact
from m3g.solvers.factored import Factored
from m3g.solvers.memory import memory_limit
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution

# Operations of one step past which a solve is refused: minutes a step on a laptop.
MOST_FLOPS = 3e13
# Problems of so few tuples need no second thought.
SMALL = 10**8


@dataclass(frozen=True)
class Estimate:
    """What a solver needs: `flops` of one step (sweep or contraction) and `bytes` of working memory."""

    solver: str
    flops: float
    bytes: float


def estimate(problem: Problem, *, solver: str = "auto") -> Estimate:
    """Operations of a step and bytes of memory that a solver would take, without solving.

    Example:
        >>> import torch, m3g
        >>> problem = m3g.CircularVariance()(torch.eye(128).expand(4, 128, 128))
        >>> cost = m3g.estimate(problem)
        >>> cost.solver, f"{cost.flops:.2g} operations a step, {cost.bytes / 2**20:.0f} MiB"
        ('factored', '1.6e+09 operations a step, 52 MiB')
    """
    _checks.one_of("solver", solver, ("auto", "factored", "sinkhorn"))
    if solver == "auto":
        solver = "factored" if isinstance(problem, PairwiseProblem) else "sinkhorn"
    tuples, itemsize, k = float(problem.num_tuples), problem.dtype.itemsize, problem.k
    batch = problem.num_batch
    if solver == "sinkhorn":
        # Per view and entry: k additions, a maximum, an exponential (counted as ten), a sum.
        return Estimate("sinkhorn", batch * tuples * k * (k + 12), batch * tuples * itemsize)
    if not isinstance(problem, PairwiseProblem):
        raise ValueError(f"solver='factored' takes a pairwise cost, got {type(problem).__name__}.")
    if not problem.complete:
        width = max(problem.sizes) ** 2
        return Estimate(
            "factored",
            batch * 6.0 * len(problem.edges) * width,
            batch * 6.0 * len(problem.edges) * width * itemsize,
        )
    others = sorted(problem.sizes)[:-1]
    half = max(1, len(others) // 2)
    largest = max(problem.sizes)
    groups = (math.prod(others[:half]) + math.prod(others[half:])) * largest
    between = math.prod(others)
    matrices = sum(problem.sizes) ** 2
    entries = 4 * groups + 2 * min(between, 2**24) + 4 * matrices
    flops = 6 * tuples if k > 2 else 6 * between
    return Estimate("factored", batch * float(flops), batch * float(entries) * itemsize)


@dataclass(frozen=True)
class Auto:
    """Takes "factored" for every cost that is a sum over pairs of views, "sinkhorn" for the others."""

    name = "auto"

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        return choose(problem).solve(problem, epsilon=epsilon, tol=tol, weights=weights)


def choose(problem: Problem) -> Factored | Sinkhorn | Exact:
    """The solver for a problem; refuses one that no solver could finish, saying how large it is."""
    if not isinstance(problem, PairwiseProblem):
        return Sinkhorn()
    if not problem.complete or problem.num_batch * problem.num_tuples < SMALL:
        return Factored()
    need = estimate(problem)
    shape = " x ".join(map(str, problem.sizes))
    _checks.fits(
        f"solving {shape} tuples exactly",
        need.bytes,
        memory_limit(problem.device),
        "use fewer points or views",
    )
    if need.flops > MOST_FLOPS:
        raise ValueError(
            f"solving {shape} tuples exactly takes {need.flops:.1e} operations a step, past the limit of "
            f"{MOST_FLOPS:.0e}: use fewer points or fewer views."
        )
    return Factored()
