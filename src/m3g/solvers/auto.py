"""Automatic choice of a solver, from predictions of its operations and memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.dense.solver import Dense
from m3g.solvers.factored.solver import Factored
from m3g.solvers.factored.streamed import RangeError
from m3g.solvers.sampled.recomputed_rows import STORED_FRACTION
from m3g.solvers.sampled.solver import Sampled
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.solver import Solver
from m3g.solvers.solution import Solution


@dataclass(frozen=True)
class Workload:
    """Predicted resources of a solve.

    Attributes:
        solver: name of the solver.
        flops: floating point operations per step.
        bytes: working memory in bytes.
    """

    solver: str
    flops: float
    bytes: float


def workload(problem: Problem, *, solver: str = "auto") -> Workload:
    """Predict the operations per step and the memory of a solver, without solving.

    Args:
        problem: a cost applied to views.
        solver: "factored", "dense", "sinkhorn", "sampled" (at its default rank), or "auto" for the automatic choice.

    Returns:
        A `Workload`, with the totals over the batch.

    Example:
        >>> import torch, m3g
        >>> problem = m3g.CircularVariance()(torch.eye(128).expand(4, 128, 128))
        >>> predicted = m3g.workload(problem)
        >>> predicted.solver, f"{predicted.flops:.2g} operations per step, {predicted.bytes / 2**20:.0f} MiB"
        ('factored', '1.6e+09 operations per step, 52 MiB')
        >>> m3g.workload(m3g.CircularVariance()(torch.eye(128).expand(8, 128, 128))).solver
        'sampled'
    """
    _checks.one_of("solver", solver, ("auto", *_PREDICTIONS))
    name = Auto().decide(problem).name if solver == "auto" else solver
    flops, num_bytes = _PREDICTIONS[name](problem)
    return Workload(name, problem.num_batch * flops, problem.num_batch * num_bytes)


# The following functions return the operations per step and the bytes of one problem of the batch.


def _dense(problem: Problem) -> tuple[float, float]:
    tuples = float(problem.num_tuples)
    # Per entry: four multiply-adds of a Newton step, and an exponential (counted as ten operations).
    return 18 * tuples, 2 * tuples * problem.dtype.itemsize


def _sinkhorn(problem: Problem) -> tuple[float, float]:
    tuples, k = float(problem.num_tuples), problem.k
    # Per view and entry: k additions, a maximum, an exponential (counted as ten operations), a sum.
    return tuples * k * (k + 12), tuples * problem.dtype.itemsize


def _factored(problem: Problem) -> tuple[float, float]:
    itemsize = problem.dtype.itemsize
    if not problem.by_pairs:
        raise ValueError(
            f"cost must be a sum over pairs of views with solver='factored', got {type(problem).__name__}."
        )
    if not problem.complete:
        entries = 6.0 * len(problem.edges) * max(problem.sizes) ** 2
        return entries, entries * itemsize
    others = sorted(problem.sizes)[:-1]
    half = max(1, len(others) // 2)
    groups = (math.prod(others[:half]) + math.prod(others[half:])) * max(problem.sizes)
    between = math.prod(others)
    entries = float(4 * groups + 2 * min(between, 2**24) + 4 * sum(problem.sizes) ** 2)
    return 6.0 * problem.num_tuples, entries * itemsize


def _sampled(problem: Problem) -> tuple[float, float]:
    entries = float(Sampled().rank) * sum(problem.sizes)
    if problem.kernel_form is None:
        raise ValueError(
            "cost must be a named cost, a PairwiseCost or a sum of these with solver='sampled', "
            f"got {type(problem).__name__}."
        )
    # Per entry of the tables, one per sample and point: its terms (two operations per feature, or one per view), an
    # exponential, two sums.
    terms = problem.k if problem.kernel_form == "pairs" else 2 * sum(tensor.shape[-1] for tensor in problem.tensors)
    limit = STORED_FRACTION * memory_limit(problem.device) / problem.num_batch
    return entries * (terms + 14), min(entries * problem.dtype.itemsize, limit)


_PREDICTIONS = {"dense": _dense, "factored": _factored, "sampled": _sampled, "sinkhorn": _sinkhorn}


class EstimatedWarning(UserWarning):
    """solver="auto" estimates the solution by sampling, because an exact solve would exceed its budget or range."""


@dataclass(frozen=True)
class Auto(Solver):
    """Automatic choice of a solver: `Factored` for costs that are sums over pairs of views, `Dense` for other costs.

    If the chosen solver would exceed the memory limit or `max_flops`, or if epsilon is too small for it, the solution
    is estimated by `Sampled`, with an `EstimatedWarning`. Three kinds of costs are never sampled: dense tensors;
    functions of k points, alone or in a sum; and pairwise costs without a term for some pair of views.

    Args:
        seed, generator: options of `Sampled`, if it is used.
        max_flops: number of operations per step above which sampling is used. An exact solve of this size takes about
            ten seconds on a laptop.
        few_tuples: a batch with fewer tuples in total is solved exactly unless epsilon is too small.

    Example:
        >>> import torch, m3g
        >>> m3g.solve(m3g.CircularVariance()(torch.eye(8).expand(3, 8, 8)), epsilon=0.1, solver="auto").solver
        'factored'
    """

    seed: int | None = None
    generator: torch.Generator | None = None
    max_flops: float = 1e11
    few_tuples: int = 10**8

    name = "auto"

    def __post_init__(self) -> None:
        self._sampled()  # validates seed and generator
        self.validate(_checks.positive, "max_flops")
        self.validate(_checks.positive_int, "few_tuples")
        self.validate(_checks.seed, "seed")

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Auto:
        return self if self.seed is not None else replace(self, seed=draw(self.generator), generator=None)

    def decide(self, problem: Problem) -> Solver:
        exact: Solver = Factored() if problem.by_pairs else Dense()
        if problem.num_batch * problem.num_tuples < self.few_tuples or not _can_be_sampled(problem):
            return exact
        predicted = workload(problem, solver=exact.name)
        within = predicted.bytes <= memory_limit(problem.device) and predicted.flops <= self.max_flops
        return exact if within else self._sampled()

    def _sampled(self) -> Sampled:
        return Sampled(seed=self.seed, generator=self.generator)

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        solver = self.decide(problem)
        if solver.exact:
            try:
                return solver.solve(problem, epsilon=epsilon, tol=tol, weights=weights)
            except RangeError:
                # Estimate the solution instead, so that training can continue.
                if not _can_be_sampled(problem):
                    raise
        # The text is the same for all problems of one shape, so that Python's default filter shows the warning once.
        warnings.warn(
            f"solving {' x '.join(map(str, problem.sizes))} tuples exactly exceeds the budget or the range of float64: "
            "solver='auto' estimates the solution by sampling, see Solution.standard_error; solver='sampled' does so "
            "without this warning.",
            EstimatedWarning,
            stacklevel=2,
        )
        return self._sampled().solve(problem, epsilon=epsilon, tol=tol, weights=weights)


def _can_be_sampled(problem: Problem) -> bool:
    """Return whether a problem may be sampled.

    It may not if `Sampled` does not support its cost, or if its cost is a sum over pairs without a term for some pair
    of views, because an exact solve is then usually cheap.
    """
    return problem.kernel_form is not None and (problem.complete or not problem.by_pairs)
