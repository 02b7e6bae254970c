"""Choosing a solver, and saying beforehand what a solve costs."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from torch import Tensor

from m3g import _checks
from m3g.costs import PairwiseProblem, Problem
from m3g.solvers.factored import Factored
from m3g.solvers.memory import memory_limit
from m3g.solvers.sampled import Sampled
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution

# Operations of one step past which a solve is left to sampling: tens of seconds a step on a laptop.
MOST_FLOPS = 1e12
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


class EstimatedWarning(UserWarning):
    """solver="auto" took the sampled solver, because the exact one was past its budget."""


@dataclass(frozen=True)
class Auto:
    """Takes "factored" for every cost that is a sum over pairs of views, "sinkhorn" for the others.

    Where "factored" would be past its budget of memory or operations, "sampled" takes over, with a warning.
    """

    name = "auto"

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        return choose(problem).solve(problem, epsilon=epsilon, tol=tol, weights=weights)


def choose(problem: Problem) -> Factored | Sampled | Sinkhorn:
    """The solver for a problem."""
    if not isinstance(problem, PairwiseProblem):
        return Sinkhorn()
    if not problem.complete or problem.num_batch * problem.num_tuples < SMALL:
        return Factored()
    need = estimate(problem)
    if need.bytes <= memory_limit(problem.device) and need.flops <= MOST_FLOPS:
        return Factored()
    # Warned from one line with one text per shape: Python's default filter shows it once.
    warnings.warn(
        f"solving {' x '.join(map(str, problem.sizes))} tuples exactly is past the budget: solver='auto' estimates the "
        "solution by sampling, see Solution.standard_error; solver='sampled' does so without this warning.",
        EstimatedWarning,
        stacklevel=2,
    )
    return Sampled()
