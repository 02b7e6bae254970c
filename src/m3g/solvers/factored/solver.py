"""Exact solver for costs that are sums over pairs of views.

If epsilon is not small, a few Sinkhorn sweeps by matrix products reach the tolerance (sweeps.py). Otherwise:

1. Each pair kernel is balanced separately (kernels.py) in O(n²), which brings the product of the kernels close to the
   solution.
2. One contraction computes all pair marginals (contraction.py; graph.py if edges are missing and n^k is large;
   streamed.py if epsilon is too small for the range of float64).
3. These form the Hessian of the dual, with which a Newton step is taken (shared/newton.py). Steps 2 and 3 are repeated
   until the marginals are within tolerance (shared/ascent.py).

The pair marginals of the last contraction also give the gradient, so a backward pass needs no contraction. After sweeps
it needs one matrix product.
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
from m3g.solvers.factored.streamed import StreamedContraction
from m3g.solvers.factored.sweeps import SWEPT_REACH, Swept, sweep
from m3g.solvers.shared.ascent import AscentState, ascend, fixed_ascent, init
from m3g.solvers.shared.couplings import PairwiseCoupling
from m3g.solvers.shared.dual import MarginalDual, Marginals
from m3g.solvers.shared.precision import DOUBLE_RANGE, full_precision
from m3g.solvers.shared.processes import Shard, processes
from m3g.solvers.shared.result import Result
from m3g.solvers.shared.solver import Solver
from m3g.solvers.solution import Solution

# Number of tuples up to which missing edges get kernels of ones, because the products of a complete graph are fast.
FEW_TUPLES = 2**20
# Total number of points up to which a graph with missing edges gets Newton steps, which need all pair marginals.
NEWTON_SIZE = 2048
# Maximum number of tuples in the log domain, if epsilon is too small for the range of float64.
STREAMED_TUPLES = 2 * 10**7
# Decreasing epsilon: the ratio of successive values, and the error at which the next one follows.
EPSILON_RATIO, LOOSE = 3.0, 0.05


class RangeError(ValueError):
    """Epsilon is too small for the range of float64, and the problem too large for the log domain."""


class RangeWarning(UserWarning):
    """Epsilon is too small for the range of float64; the solver uses the log domain, which is slower."""


@dataclass(frozen=True)
class Factored(Solver):
    r"""Exact solver for pairwise costs: damped Newton steps on the dual (Eq. 9 of the paper) by matrix products.

    With scalings :math:`u_l = e^{f_l / \varepsilon}` and kernels :math:`K_{lm} = e^{-D_{lm} / \varepsilon}`,

    .. math:: P = \prod_l u_l[i_l] \prod_{l<m} K_{lm}[i_l, i_m], \qquad
        H = \begin{cases} \operatorname{diag}(m_l) & l = m \\ P_{lm} & l \neq m \end{cases}

    where H, the negative Hessian up to a factor, consists of the pair marginals. Complexity: three matrix products of
    n^k multiply-adds and one linear system of size k n per step, usually fewer than 10 steps; O(k n²) per step on
    trees.
    Memory: O(n^(k-1)) at most, in slabs; no tensor of n^k entries.

    Args:
        newton: take Newton steps; False uses Sinkhorn updates only. None means True, unless the graph of views has
            missing edges and there are more than 2048 points in total.
        max_steps: maximum number of contractions; None means 100 with Newton steps and 10 000 without.
        check_every: steps between two reads of the error, which synchronise with an accelerator; None means 1 on a CPU
            and 4 elsewhere.
        fixed_steps: take exactly this number of steps without reading the error (no synchronisation, one compiled
            graph); `Solution.error` still reports the error. Steps are then not backtracked, and kernels keep the dtype
            of the problem. Compiled matrix products have the precision of `torch.set_float32_matmul_precision`.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(4, 16, 8), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.02, solver=m3g.Factored())
        >>> solution.converged, solution.num_steps < 20
        (True, True)

    References: Brauer et al., 2017 :cite:`brauer2017`, for Newton's method on the dual of two marginals; Haasler et
    al., 2021 :cite:`haasler2021`, for graphs of views; Nocedal and Wright, 2006 :cite:`nocedal2006`, for damping.
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
        if torch.compiler.is_compiling():  # process settings cannot change inside a graph
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
            # The range was estimated from the costs; weights of many magnitudes require more.
            kernels = pair_kernels(problem, weights, epsilon=epsilon, tol=tol, read_values=True, logs=True)
        return self._streamed(problem, kernels, epsilon, tol)

    def _in_range(self, problem: PairwiseProblem, kernels: Kernels, epsilon: float, tol: float) -> Solution:
        """Solve with the kernels in the exponential domain."""
        fixed = self.fixed_steps is not None
        newton = self._takes_newton(problem)
        contraction = self._contraction(problem, kernels.matrices, newton)
        shard = contraction.shard
        sharded = contraction if shard is None else ShardedContraction(contraction, shard)
        dual = MarginalDual.of(sharded, kernels.target, kernels.dtype, newton, fixed)
        if self.fixed_steps is not None:
            state = fixed_ascent(dual, balanced_start(problem, kernels), self.fixed_steps)
            return _solution(problem, kernels, FinalPoint.of(dual, state), epsilon, tol)
        swept: Swept | None = None
        if newton and isinstance(contraction, CompleteContraction) and _can_be_swept(contraction, kernels):
            swept = sweep(contraction, kernels.target, tol=tol, reach=kernels.reach, max_steps=self.max_steps or 100)
            if swept.worst <= tol:
                return _solution(problem, kernels, FinalPoint.after(swept), epsilon, tol, Result.CONVERGED)
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
        return _solution(problem, kernels, FinalPoint.of(dual, state), epsilon, tol, result)

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
        """Solve in the log domain with decreasing epsilon."""
        if kernels.reach == math.inf:
            raise RangeError(f"costs divided by epsilon must be finite in float64, got inf with epsilon {epsilon:g}.")
        if problem.num_batch * problem.num_tuples > STREAMED_TUPLES:
            raise RangeError(
                f"epsilon must be at least {epsilon * kernels.reach / DOUBLE_RANGE:.2g} with solver='factored' on "
                f"these costs of {problem.num_tuples} tuples, got {epsilon:g}: use solver='sampled'."
            )
        # One source line and one text, so that Python's default filter shows the warning once.
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
                final = FinalPoint.of(dual, state)._replace(num_steps=steps)
                return _solution(problem, kernels, final, epsilon, tol, result)
            smaller = max(1.0, scale / EPSILON_RATIO)
            log_scaling, scale = state.current.log_scaling * (scale / smaller), smaller


def _can_be_swept(contraction: CompleteContraction, kernels: Kernels) -> bool:
    """Return whether all numbers have one dtype, and M of sweeps.py fits into one slab."""
    return (
        contraction.fits_one_slab()
        and kernels.target.dtype == contraction.kernels[0, 1].dtype
        and kernels.reach < SWEPT_REACH
    )


class FinalPoint(NamedTuple):
    """Result of a solve: log scalings (b, N), error (b,), pair marginals, and a function that computes missing ones.

    Pair marginals are those of `shard`, if it is not None.
    """

    log_scaling: Tensor
    error: Tensor
    pairs: dict[Edge, Tensor]
    missing: Callable[[int, int], dict[Edge, Tensor]]
    num_steps: int
    shard: Shard | None = None

    @staticmethod
    def after(swept: Swept) -> FinalPoint:
        shard = swept.contraction.shard
        pairs = {} if shard is None else swept.pairs()
        return FinalPoint(swept.log_scaling(), swept.error, pairs, lambda l, m: swept.pairs(), swept.num_steps, shard)

    @staticmethod
    def of(dual: MarginalDual, state: AscentState[Marginals]) -> FinalPoint:
        point = state.current

        def missing(l: int, m: int) -> dict[Edge, Tensor]:
            return {(l, m): dual.contraction.pair(dual.scalings(point.log_scaling), l, m)}

        return FinalPoint(
            point.log_scaling, point.error, point.pairs, missing, state.num_steps, dual.contraction.partial
        )


def _solution(
    problem: PairwiseProblem,
    kernels: Kernels,
    final: FinalPoint,
    epsilon: float,
    tol: float,
    result: Result | None = None,
) -> Solution:
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
    """Return one number per problem in its dtype and batch shape."""
    return (numbers if numbers.dtype == problem.dtype else numbers.to(problem.dtype)).view(problem.batch)
