"""Exact solver for costs that are sums over pairs of views.

If epsilon is not small, a few Sinkhorn sweeps by matrix products reach the tolerance (sweeps.py). Otherwise:

1. Unless a few sweeps have provided initial scalings, each pair kernel is balanced separately in O(n²) (kernels.py).
2. A contraction computes all pair marginals (contraction.py; graph.py for a large problem in which some pairs of views
   have no cost; streamed.py if epsilon is too small for the range of float64).
3. The pair marginals form the Hessian of the dual, with which a Newton step is taken (shared/newton.py). Steps 2 and 3
   are repeated until the marginals are within tolerance (shared/ascent.py).

The gradient is computed from the pair marginals of the last contraction, so a backward pass requires no contraction.
After sweeps, it requires at most one large matrix product.
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
from m3g.solvers.factored.sharded import ShardedContraction, all_pairs, sharded_gradients
from m3g.solvers.factored.streamed import RangeError, RangeWarning, StreamedContraction
from m3g.solvers.factored.sweeps import SWEPT_REACH, Swept, sweep
from m3g.solvers.shared.ascent import AscentState, ascend, fixed_ascent, init
from m3g.solvers.shared.couplings import PairwiseCoupling
from m3g.solvers.shared.dual import MarginalDual, Marginals
from m3g.solvers.shared.memory import keep_freed_memory
from m3g.solvers.shared.precision import DOUBLE_RANGE, full_precision
from m3g.solvers.shared.processes import Shard, processes
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.solution import Solution

# Number of tuples up to which kernels of ones replace missing edges (pairs of views without a cost), because a complete
# graph of few tuples is fast. With `fixed_steps`, kernels of ones always replace them.
FEW_TUPLES = 2**20
# Number of points N up to which Newton steps, which require all pair marginals, are taken with missing edges.
NEWTON_SIZE = 2048
# Maximum number of tuples of a solve in the log domain.
STREAMED_TUPLES = 2 * 10**7
# Decreasing epsilon in the log domain: the ratio of successive values, and the tolerance of all but the last.
EPSILON_RATIO, LOOSE_TOL = 3.0, 0.05


@dataclass(frozen=True)
class Factored(Solver):
    r"""Exact solver for sums over pairs of views: damped Newton steps on the dual (Eq. 9 of the paper).

    For costs :math:`C = \sum_{l<m} D_{lm}[i_l, i_m]`, with scalings :math:`u_l = e^{f_l / \varepsilon}` and kernels
    :math:`K_{lm} = e^{-D_{lm} / \varepsilon}`, the coupling and the Newton matrix are

    .. math:: P[i_1, \dots, i_k] = \prod_l u_l[i_l] \prod_{l<m} K_{lm}[i_l, i_m], \qquad
        H_{lm} = \begin{cases} \operatorname{diag}(m_l) & l = m \\ P_{lm} & l \neq m \end{cases}

    where :math:`m_l` are the marginals and :math:`P_{lm}` the pair marginals of P. H is the negative Hessian of the
    dual, up to a factor. If epsilon is not small, a few sweeps of Algorithm 1 replace the Newton steps.

    Complexity per step: three matrix products of n^k multiply-adds and one linear system of size k n. A large problem
    whose pairs of views with a cost form a tree takes O(k² n²) per sweep, or O(k³ n³) per Newton step. Usually fewer
    than 10 steps are required. Memory: O(n²) for two views, otherwise at most O(n^(k-1)).

    Args:
        newton: whether to take Newton steps; False takes only Sinkhorn updates, except in the log domain. None means
            True, unless some pairs of views have no cost and there are more than 2048 points in total.
        max_steps: maximum number of steps, per epsilon in the log domain; None means 100 (10 000 without Newton steps).
        check_every: number of steps between two reads of the error, which synchronise with an accelerator; None means 1
            on a CPU and 4 elsewhere.
        fixed_steps: evaluate the dual exactly this number of times, with a step between successive evaluations, without
            reading the error. There is then no synchronisation, and the solve compiles to one graph. Steps are not
            backtracked, and kernels have the dtype of the problem, or float64 if `tol` requires it. Compiled matrix
            products have the precision of `torch.set_float32_matmul_precision`.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(4, 16, 8), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.02, solver=m3g.Factored())
        >>> solution.converged, solution.num_steps < 20
        (True, True)

    References: Brauer et al., 2017 :cite:`brauer2017`, for Newton's method on the dual of two marginals; Haasler et
    al., 2021 :cite:`haasler2021`, for graphs of views; Nocedal and Wright, 2006 :cite:`nocedal2006`, for damping and
    backtracking.
    """

    newton: bool | None = None
    max_steps: int | None = None
    check_every: int | None = None
    fixed_steps: int | None = None

    name = "factored"
    distributable = True

    def __post_init__(self) -> None:
        self.validate(_checks.positive_int, "max_steps", "check_every", "fixed_steps")
        self.validate(_checks.flag, "newton")

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if not isinstance(problem, PairwiseProblem):
            raise ValueError(
                "cost must be a sum over pairs of views with solver='factored', "
                f"got {type(problem).__name__}: use solver='dense'."
            )
        if torch.compiler.is_compiling():  # global settings cannot be changed inside a compiled graph
            with torch.no_grad():
                return self._solve(problem, epsilon, tol, weights)
        keep_freed_memory(problem.num_batch * problem.num_tuples // max(problem.sizes) * problem.dtype.itemsize)
        with full_precision(problem.device):
            return self._solve(problem, epsilon, tol, weights)

    def _solve(self, problem: PairwiseProblem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        fixed = self.fixed_steps is not None
        kernels = pair_kernels(problem, weights, epsilon=epsilon, tol=tol, read_values=not fixed)
        if kernels.in_range:
            solution = self._solve_in_range(problem, kernels, epsilon, tol)
            if solution.reason is not Result.OUT_OF_RANGE or not all(
                bool(torch.isfinite(tensor).all()) for tensor in problem.tensors
            ):
                return solution
            # The range was estimated from the costs. Weights of very different magnitudes require a larger range.
            kernels = pair_kernels(problem, weights, epsilon=epsilon, tol=tol, read_values=True, logs=True)
        return self._solve_in_logs(problem, kernels, epsilon, tol)

    def _solve_in_range(self, problem: PairwiseProblem, kernels: Kernels, epsilon: float, tol: float) -> Solution:
        """Solve with kernels, not their logarithms."""
        fixed, newton = self.fixed_steps is not None, self._uses_newton(problem)
        contraction = self._contraction(problem, kernels.matrices, newton)
        shard = contraction.shard
        sharded = contraction if shard is None else ShardedContraction(contraction, shard)
        dual = MarginalDual.of(sharded, kernels.target, kernels.dtype, newton, fixed)
        if self.fixed_steps is not None:
            state = fixed_ascent(dual, balanced_start(problem, kernels), self.fixed_steps)
            return _solution(problem, kernels, FinalPoint.from_ascent(dual, state), epsilon, tol)
        swept: Swept | None = None
        if newton and isinstance(contraction, CompleteContraction) and _can_be_swept(contraction, kernels):
            swept = sweep(contraction, kernels.target, tol=tol, reach=kernels.reach, max_steps=self.max_steps or 100)
            if swept.worst <= tol:
                return _solution(problem, kernels, FinalPoint.from_sweeps(swept), epsilon, tol, Result.CONVERGED)
        if swept is not None and math.isfinite(swept.worst):
            pairs = swept.pairs()
            others = swept.contraction.summed(swept.contraction.others(pairs))
            if shard is not None and dual.contraction.pairs_shard is None:
                pairs = shard.pairs(pairs)
            point = dual.from_marginals(swept.log_scaling(), pairs, others)
            state = AscentState(point, num_steps=swept.num_steps + 1)
        else:
            state = init(dual, balanced_start(problem, kernels))
        state, result = ascend(
            dual,
            state,
            tol=tol,
            max_steps=self.max_steps or (100 if newton else 10_000),
            check_every=self.check_every or (1 if problem.device.type == "cpu" else 4),
        )
        return _solution(problem, kernels, FinalPoint.from_ascent(dual, state), epsilon, tol, result)

    def _uses_newton(self, problem: PairwiseProblem) -> bool:
        small = problem.complete or sum(problem.sizes) <= NEWTON_SIZE
        return small if self.newton is None else self.newton

    def _contraction(
        self, problem: PairwiseProblem, kernels: dict[Edge, Tensor], newton: bool
    ) -> CompleteContraction | GraphContraction:
        """Return the contraction of the kernels; kernels of ones may replace missing edges (see `FEW_TUPLES`)."""
        fixed = self.fixed_steps is not None
        if not problem.complete:
            if not fixed and problem.num_batch * problem.num_tuples > FEW_TUPLES:
                return GraphContraction(kernels, problem.sizes, all_pairs=newton)
            example, sizes = next(iter(kernels.values())), problem.sizes
            kernels = {
                (l, m): kernels[l, m] if (l, m) in kernels else example.new_ones(example.shape[0], sizes[l], sizes[m])
                for l, m in all_edges(problem.k)
            }
        return CompleteContraction(kernels, problem.sizes, whole=fixed, sharing=None if fixed else processes())

    def _solve_in_logs(self, problem: PairwiseProblem, kernels: Kernels, epsilon: float, tol: float) -> Solution:
        """Solve in the log domain with decreasing epsilon."""
        if kernels.reach == math.inf:
            raise RangeError(f"costs divided by epsilon must be finite in float64, got inf with epsilon {epsilon:g}.")
        if problem.num_batch * problem.num_tuples > STREAMED_TUPLES:
            raise RangeError(
                f"epsilon must be at least {epsilon * kernels.reach / DOUBLE_RANGE:.2g} with solver='factored' for "
                f"these costs of {problem.num_tuples} tuples, got {epsilon:g}: use solver='sampled'."
            )
        # The text is always the same, so that Python's default filter shows the warning once per calling line.
        warnings.warn(
            "epsilon is too small for the range of float64 with these costs: solver='factored' works in the log "
            "domain, which is slower.",
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
            state, result = ascend(dual, init(dual, log_scaling), tol=tol if last else LOOSE_TOL, max_steps=limit)
            steps += state.num_steps
            if last:
                final = FinalPoint.from_ascent(dual, state)._replace(num_steps=steps)
                return _solution(problem, kernels, final, epsilon, tol, result)
            smaller = max(1.0, scale / EPSILON_RATIO)
            log_scaling, scale = state.current.log_scaling * (scale / smaller), smaller


def _can_be_swept(contraction: CompleteContraction, kernels: Kernels) -> bool:
    """Return whether exponents are small, all tensors have one dtype, and M of sweeps.py fits into one slab."""
    return (
        contraction.fits_one_slab()
        and kernels.target.dtype == contraction.kernels[0, 1].dtype
        and kernels.reach < SWEPT_REACH
    )


class FinalPoint(NamedTuple):
    """Last point of a solve.

    Attributes:
        log_scaling: (b, N).
        error: (b,), the marginal error.
        pairs: pair marginals that have been computed; those of `shard` if it is not None.
        missing: function that computes a pair marginal that is not in `pairs`.
    """

    log_scaling: Tensor
    error: Tensor
    pairs: dict[Edge, Tensor]
    missing: Callable[[int, int], dict[Edge, Tensor]]
    num_steps: int
    shard: Shard | None = None

    @staticmethod
    def from_sweeps(swept: Swept) -> FinalPoint:
        shard = swept.contraction.shard
        pairs = {} if shard is None else swept.pairs()
        return FinalPoint(swept.log_scaling(), swept.error, pairs, lambda l, m: swept.pairs(), swept.num_steps, shard)

    @staticmethod
    def from_ascent(dual: MarginalDual, state: AscentState[Marginals]) -> FinalPoint:
        point = state.current

        def missing(l: int, m: int) -> dict[Edge, Tensor]:
            return {(l, m): dual.contraction.pair(dual.scalings(point.log_scaling), l, m)}

        return FinalPoint(
            point.log_scaling, point.error, point.pairs, missing, state.num_steps, dual.contraction.pairs_shard
        )


def _solution(
    problem: PairwiseProblem,
    kernels: Kernels,
    final: FinalPoint,
    epsilon: float,
    tol: float,
    result: Result | None = None,
) -> Solution:
    """Return the solution at the last point, with potentials and value in the units of the cost."""
    if kernels.shift is None:
        potentials = final.log_scaling * epsilon
    else:
        potentials = torch.add(kernels.shift, final.log_scaling, alpha=epsilon)
    target = kernels.target if kernels.target.dtype == potentials.dtype else kernels.target.to(potentials.dtype)
    value = torch.linalg.vecdot(potentials - epsilon / problem.k, target)
    gradients, pairs, missing = None, final.pairs, final.missing
    if final.shard is not None:
        gradients = sharded_gradients(problem, final.pairs, final.shard)
        pairs, missing = {}, lambda l, m: all_pairs(problem.sizes, kernels, final.log_scaling)
    return Solution(
        problem=problem,
        epsilon=epsilon,
        value=_per_problem(problem, value),
        flat_potentials=potentials,
        error=_per_problem(problem, final.error),
        num_steps=final.num_steps,
        tol=tol,
        solver=Factored.name,
        coupling_form=PairwiseCoupling(problem, final.log_scaling, epsilon, kernels.groups[0].dtype, pairs, missing),
        reason=result,
        gradients=gradients,
    )


def _per_problem(problem: PairwiseProblem, numbers: Tensor) -> Tensor:
    """Return one number per problem (b,) in the dtype and batch shape of the problem."""
    return (numbers if numbers.dtype == problem.dtype else numbers.to(problem.dtype)).view(problem.batch)
