"""The exact and fast solver for costs that are sums over pairs of views.

Where epsilon is not small, a few Sinkhorn sweeps by matrix products reach the tolerance (sweeps.py). Else:

1. Each pair kernel is balanced on its own (kernels.py), which costs O(n²) and already puts the product of the
   kernels close to the solution.
2. One contraction gives all pair marginals (contraction.py; graph.py where edges are missing and n^k is large;
   streamed.py where epsilon is too small for the range of the numbers).
3. They are the Hessian of the dual, so a Newton step follows (shared/newton.py); back to 2 until the marginals are
   right. The loop is that of shared/ascent.py.

The pair marginals of the last contraction are also the gradient: a backward pass costs nothing more. After sweeps
one matrix product more finds them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import PairwiseProblem, Problem, all_edges
from m3g.costs.coupling import Edge
from m3g.solvers.factored.contraction import CompleteContraction
from m3g.solvers.factored.graph import GraphContraction
from m3g.solvers.factored.kernels import Kernels, balanced_start, pair_kernels
from m3g.solvers.factored.sharded import ShardedContraction
from m3g.solvers.factored.streamed import StreamedContraction
from m3g.solvers.factored.sweeps import SWEPT_REACH, Swept, sweep
from m3g.solvers.shared.ascent import AscentState, ascend, fixed_ascent, init
from m3g.solvers.shared.couplings import PairwiseCoupling
from m3g.solvers.shared.dual import MarginalDual, Marginals
from m3g.solvers.shared.precision import DOUBLE_RANGE, full_precision
from m3g.solvers.shared.processes import processes
from m3g.solvers.shared.result import Result
from m3g.solvers.shared.solver import Solver
from m3g.solvers.solution import Solution

# Tuples up to which a missing edge is a kernel of ones, for the matrix products of a complete graph are quick.
FEW_TUPLES = 2**20
# Points of all views up to which a graph with missing edges gets Newton steps, which need all pair marginals.
NEWTON_SIZE = 2048
# Tuples that are streamed in the log domain where epsilon is too small for the range of the numbers.
STREAMED_TUPLES = 2 * 10**7
# On the way to a small epsilon: how much smaller it gets at a time, and the error that is good enough to go on.
EPSILON_RATIO, LOOSE = 3.0, 0.05


class RangeError(ValueError):
    """Epsilon is too small for the range of float64, and the problem too large for the log domain."""


class RangeWarning(UserWarning):
    """Epsilon is too small for the range of float64, so the solver works in the log domain, which is slower."""


@dataclass(frozen=True)
class Factored(Solver):
    """Exact for every pairwise cost, by matrix products; nothing of size n^k is held.

    Args:
        newton: take Newton steps. None lets the solver choose: they are taken unless views have missing edges and
            more than 2048 points in all. False leaves Sinkhorn updates only.
        max_steps: contractions before it gives up; None means 100 with Newton steps and 10 000 without.
        check_every: steps between two reads of the error. On an accelerator every read makes the host wait; None
            means 1 on a CPU and 4 elsewhere.
        fixed_steps: take just this many steps and never read the error (no waiting for an accelerator, one compiled
            graph); `Solution.error` still tells how good they were. Steps are then not taken back, and kernels keep the
            problem's type. Compiled, matrix products have the precision of `torch.set_float32_matmul_precision`.
    """

    newton: bool | None = None
    max_steps: int | None = None
    check_every: int | None = None
    fixed_steps: int | None = None

    name = "factored"

    def __post_init__(self) -> None:
        for field in ("max_steps", "check_every", "fixed_steps"):
            if getattr(self, field) is not None:
                _checks.positive_int(field, getattr(self, field))

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if not isinstance(problem, PairwiseProblem):
            raise ValueError(
                "cost must be a sum over pairs of views with solver='factored', "
                f"got {type(problem).__name__}: use solver='dense'."
            )
        if torch.compiler.is_compiling():  # settings of the process cannot change inside a graph
            with torch.no_grad():
                return self._solve(problem, epsilon, tol, weights)
        with full_precision(problem.device):
            return self._solve(problem, epsilon, tol, weights)

    def _solve(self, problem: PairwiseProblem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        fixed = self.fixed_steps is not None
        kernels = pair_kernels(problem, weights, epsilon=epsilon, tol=tol, read_values=not fixed)
        if kernels.in_range:
            solution = self._in_range(problem, kernels, epsilon, tol)
            if solution.reason is not Result.OUT_OF_RANGE or not all(
                bool(torch.isfinite(tensor).all()) for tensor in problem.tensors
            ):
                return solution
            # The range was known from the costs alone; weights of many magnitudes need more of it.
            kernels = pair_kernels(problem, weights, epsilon=epsilon, tol=tol, read_values=True, logs=True)
        return self._streamed(problem, kernels, epsilon, tol)

    def _in_range(self, problem: PairwiseProblem, kernels: Kernels, epsilon: float, tol: float) -> Solution:
        """By products of the kernels themselves."""
        fixed = self.fixed_steps is not None
        newton = self._takes_newton(problem)
        contraction = self._contraction(problem, kernels.matrices, newton)
        shard = contraction.shard
        sharded = contraction if shard is None else ShardedContraction(contraction, shard)
        dual = MarginalDual.of(sharded, kernels.target, kernels.dtype, newton, fixed)
        if self.fixed_steps is not None:
            state = fixed_ascent(dual, balanced_start(problem, kernels), self.fixed_steps)
            return _solution(problem, kernels, Found.of(dual, state), epsilon, tol)
        swept: Swept | None = None
        if newton and isinstance(contraction, CompleteContraction) and _can_be_swept(contraction, kernels):
            swept = sweep(contraction, kernels.target, tol=tol, reach=kernels.reach, max_steps=self.max_steps or 100)
            if swept.worst <= tol:
                return _solution(problem, kernels, Found.after(swept), epsilon, tol, Result.CONVERGED)
        if swept is not None and math.isfinite(swept.worst):
            pairs = swept.pairs()
            others = swept.contraction.summed(swept.contraction.others(pairs))
            if shard is not None and dual.contraction.partial is None:
                pairs = shard.pairs(pairs)
            known = dual.known(swept.log_scaling(), pairs, others)
            state = AscentState(known, num_steps=swept.num_steps + 1)
        else:
            state = init(dual, balanced_start(problem, kernels))
        state, result = ascend(
            dual,
            state,
            tol=tol,
            max_steps=self.max_steps or (100 if newton else 10_000),
            check_every=self.check_every or (1 if problem.device.type == "cpu" else 4),
        )
        return _solution(problem, kernels, Found.of(dual, state), epsilon, tol, result)

    def _takes_newton(self, problem: PairwiseProblem) -> bool:
        small = problem.complete or sum(problem.sizes) <= NEWTON_SIZE
        return small if self.newton is None else self.newton

    def _contraction(
        self, problem: PairwiseProblem, kernels: dict[Edge, Tensor], newton: bool
    ) -> CompleteContraction | GraphContraction:
        fixed = self.fixed_steps is not None
        if not problem.complete:
            if not fixed and problem.num_batch * problem.num_tuples > FEW_TUPLES:
                return GraphContraction(kernels, problem.sizes, all_pairs=newton)
            example = next(iter(kernels.values()))
            sizes = problem.sizes
            kernels = {
                (l, m): kernels[l, m] if (l, m) in kernels else example.new_ones(example.shape[0], sizes[l], sizes[m])
                for l, m in all_edges(problem.k)
            }
        return CompleteContraction(kernels, problem.sizes, whole=fixed, sharing=None if fixed else processes())

    def _streamed(self, problem: PairwiseProblem, kernels: Kernels, epsilon: float, tol: float) -> Solution:
        """In the log domain, epsilon being made smaller step by step."""
        if kernels.reach == math.inf:
            raise RangeError(f"costs divided by epsilon must be finite in float64, got inf with epsilon {epsilon:g}.")
        if problem.num_batch * problem.num_tuples > STREAMED_TUPLES:
            raise RangeError(
                f"epsilon must be at least {epsilon * kernels.reach / DOUBLE_RANGE:.2g} with solver='factored' on "
                f"these costs of {problem.num_tuples} tuples, got {epsilon:g}: use solver='sampled'."
            )
        # Warned from one line with one text: Python's default filter shows it once.
        warnings.warn(
            "epsilon is too small for the range of float64 on these costs: solver='factored' works in the log domain, "
            "which is slower.",
            RangeWarning,
            stacklevel=5,
        )
        scale = 1.0
        while kernels.reach / scale > DOUBLE_RANGE / 10:
            scale *= EPSILON_RATIO
        log_scaling, steps = kernels.target.log(), 0
        while True:
            logs = {edge: matrix / scale for edge, matrix in kernels.matrices.items()}
            dual = MarginalDual.of(StreamedContraction(logs, problem.sizes), kernels.target, kernels.dtype, True, False)
            last = scale <= 1.0
            limit = self.max_steps or 100
            state, result = ascend(dual, init(dual, log_scaling), tol=tol if last else LOOSE, max_steps=limit)
            steps += state.num_steps
            if last:
                found = Found.of(dual, state)._replace(num_steps=steps)
                return _solution(problem, kernels, found, epsilon, tol, result)
            smaller = max(1.0, scale / EPSILON_RATIO)
            log_scaling, scale = state.found.log_scaling * (scale / smaller), smaller


def _can_be_swept(contraction: CompleteContraction, kernels: Kernels) -> bool:
    """Where all numbers have one type, and M of sweeps.py is held in one piece."""
    return (
        contraction.in_one_piece()
        and kernels.target.dtype == contraction.kernels[0, 1].dtype
        and kernels.reach < SWEPT_REACH
    )


class Found(NamedTuple):
    """Where a solve ended: log scalings (b, N), error (b,), pair marginals and how to find one that is missing."""

    log_scaling: Tensor
    error: Tensor
    pairs: dict[Edge, Tensor]
    missing: Callable[[int, int], dict[Edge, Tensor]]
    num_steps: int

    @staticmethod
    def after(swept: Swept) -> Found:
        shard = swept.contraction.shard
        pairs = {} if shard is None else shard.pairs(swept.pairs())  # while the processes exchange
        return Found(swept.log_scaling(), swept.error, pairs, lambda l, m: swept.pairs(), swept.num_steps)

    @staticmethod
    def of(dual: MarginalDual, state: AscentState[Marginals]) -> Found:
        found, partial = state.found, dual.contraction.partial
        pairs = found.pairs if partial is None else partial.pairs(found.pairs)

        def missing(l: int, m: int) -> dict[Edge, Tensor]:
            return {(l, m): dual.contraction.pair(dual.scalings(found.log_scaling), l, m)}

        return Found(found.log_scaling, found.error, pairs, missing, state.num_steps)


def _solution(
    problem: PairwiseProblem,
    kernels: Kernels,
    found: Found,
    epsilon: float,
    tol: float,
    result: Result | None = None,
) -> Solution:
    if kernels.shift is None:
        potentials = found.log_scaling * epsilon
    else:
        potentials = torch.add(kernels.shift, found.log_scaling, alpha=epsilon)
    target = kernels.target if kernels.target.dtype == potentials.dtype else kernels.target.to(potentials.dtype)
    value = torch.linalg.vecdot(potentials - epsilon / problem.k, target)
    return Solution(
        problem=problem,
        epsilon=epsilon,
        value=_as_of(problem, value),
        flat_potentials=potentials,
        error=_as_of(problem, found.error),
        num_steps=found.num_steps,
        tol=tol,
        solver=Factored.name,
        coupling_form=PairwiseCoupling(
            problem, found.log_scaling, epsilon, kernels.groups[0].dtype, found.pairs, found.missing
        ),
        reason=result,
    )


def _as_of(problem: PairwiseProblem, numbers: Tensor) -> Tensor:
    """One number per problem in its type and batch shape."""
    return (numbers if numbers.dtype == problem.dtype else numbers.to(problem.dtype)).view(problem.batch)
