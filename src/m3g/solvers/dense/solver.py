"""Exact solver for any multiway cost: scaling sweeps and damped Newton steps on the full tensor.

1. K = exp(⊕base - C / eps) is computed with absorbed log scalings `base`, which keep it in the range of its dtype.
2. Scaling sweeps by matrix–vector products with K (sweeps.py) reach the tolerance if epsilon is not small.
3. Otherwise Newton steps on the dual follow (shared/ascent.py). The Hessian of the dual consists of the pair marginals,
   whose computation requires three passes over K (costs/contraction.py).

K is recomputed if the scalings differ much from the absorbed ones, and for each of the decreasing epsilons of a solve
at a small epsilon. One exponential of n^k entries takes as long as ten passes, so the cost tensor and the exponentials
dominate the time of a solve. K is computed by multiplications instead (powers.py) if three conditions hold: the cost is
a logarithm, like the circular standard deviation; 2 / eps is a whole number of at most 256; and the range of C / eps is
small. K overwrites the cost tensor if the problem allows it (`Problem.new_slabs`) and the cost is not read again.
Beyond the memory limit, slabs of the cost tensor and of K are recomputed in each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.costs.problem import vector_dtype
from m3g.solvers.dense.coupling import KernelCoupling
from m3g.solvers.dense.kernel import Kernel
from m3g.solvers.dense.marginals import group_update, reduced_joints, suffix_products
from m3g.solvers.dense.sweeps import sweep
from m3g.solvers.shared.ascent import ascend, fixed_ascent, init
from m3g.solvers.shared.dual import Contracted, Contraction, MarginalDual
from m3g.solvers.shared.memory import keep_freed_memory, memory_limit
from m3g.solvers.shared.precision import full_precision
from m3g.solvers.shared.processes import processes
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution

# A float32 problem is solved in float64 if the tolerance is below MIN_SINGLE_TOLERANCE, or if the rounding error of an
# exponent exceeds ROUNDING times the tolerance.
MIN_SINGLE_TOLERANCE, ROUNDING = 2e-5, 0.1
# Range of the exponents up to which K stays in range if only the lowest cost is absorbed.
FLAT_REACH = 70.0
# Decreasing epsilon: EPSILON_RATIO is the ratio of successive epsilons, and LOOSE the tolerance at all but the last. At
# the first epsilon, the range of the exponents is between FIRST_REACH and EPSILON_RATIO · FIRST_REACH.
FIRST_REACH, EPSILON_RATIO, LOOSE = 150.0, 3.0, 0.1
FIXED_SWEEPS = 3


class TensorContraction(Contraction):
    """Contraction of the full tensor K; scalings are passed and returned as logarithms."""

    in_logs = True

    def __init__(self, kernel: Kernel):
        self.kernel, self.sizes = kernel, kernel.sizes

    def evaluate(self, log_scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        kernel = self.kernel
        log_scaling = torch.cat(list(log_scalings), 1)
        if kernel.fixed:
            kernel.absorb(log_scaling)
        pairs, lead = kernel.pairs(kernel.scalings(log_scaling), target.to(kernel.dtype))
        assert kernel.base is not None
        others = torch.cat([pairs[0, l].sum(1) for l in range(1, len(self.sizes))], 1)
        log_lead = kernel.base[:, : self.sizes[0]] + lead.to(kernel.base.dtype).log()
        return Contracted(pairs, others.to(target.dtype), log_lead)


@dataclass(frozen=True)
class Dense(Solver):
    r"""Exact solver for any cost: scaling sweeps and damped Newton steps on the dual (Eq. 9 of the paper).

    The coupling (Eq. 10 of the paper) is a full tensor of n^k entries,

    .. math:: P = K \circ (u_1 \otimes \dots \otimes u_k), \qquad K = e^{\oplus b - C / \varepsilon}

    with scalings :math:`u_l` and absorbed log scalings :math:`b`, which keep K in range.

    Complexity: O(n^k) for one or a few exponentials of n^k entries, besides the cost tensor, and per step two (sweep)
    or three (Newton step) passes over K. A Newton system of N = Σ n_l points takes O(N³) by factorisation if N is at
    most 400, and otherwise O(N²) per iteration of conjugate gradients, with a factorisation only if they do not
    converge.

    Memory: for `CircularStd`, `MultilinearProduct` and sums, K overwrites the cost tensor, so that a solve with its
    gradient requires at most about twice the memory of the cost tensor. Further tensors of this size are allocated for
    other costs, and if the cost is read again (decreasing epsilon, `fixed_steps`) or has another dtype than K.

    Args:
        max_steps: maximum number of sweeps, and of evaluations of the dual in the Newton steps, at each epsilon.
        fixed_steps: evaluate the dual exactly this number of times after three sweeps, with a Newton step between
            successive evaluations. No value is read on the host, so that the solve compiles to one graph. Steps are
            then not backtracked, and epsilon is not decreased; `Solution.error` still reports the error.
        memory_limit: maximum bytes of the cost tensor and K together; None means half of the total memory of the
            device. Beyond it, slabs of both are recomputed in every pass.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(3, 16, 8), dim=-1)
        >>> solution = m3g.solve(m3g.MultilinearProduct()(views), epsilon=0.05, solver=m3g.Dense())
        >>> solution.converged, solution.num_steps < 20
        (True, True)

    References: Schmitzer, 2019 :cite:`schmitzer2019`, for absorbed scalings and decreasing epsilon; Brauer et al., 2017
    :cite:`brauer2017`, for Newton's method on the dual.
    """

    max_steps: int = 200
    fixed_steps: int | None = None
    memory_limit: int | None = None

    name = "dense"
    distributable = True

    def __post_init__(self) -> None:
        self.validate(_checks.positive_int, "max_steps", "fixed_steps", "memory_limit")

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if torch.compiler.is_compiling():  # global settings cannot be changed inside a compiled graph
            with torch.no_grad():
                return self._solve(problem, epsilon, tol, weights)
        keep_freed_memory(problem.num_batch * problem.num_tuples * problem.dtype.itemsize)
        with full_precision(problem.device):
            return self._solve(problem, epsilon, tol, weights)

    def _kernel(self, problem: Problem, epsilon: float, dtype: torch.dtype) -> Kernel:
        limit = memory_limit(problem.device) if self.memory_limit is None else self.memory_limit
        needed = problem.num_batch * problem.num_tuples * (problem.dtype.itemsize + dtype.itemsize)
        sharing = processes()
        needed = needed if sharing is None else needed // sharing.count
        return Kernel(problem, epsilon, dtype, kept=needed <= limit, fixed=self.fixed_steps is not None)

    def _solve(self, problem: Problem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        wide = vector_dtype(problem.device)
        target = concatenated_weights(problem, weights, wide)
        dtype = wide if tol < MIN_SINGLE_TOLERANCE else problem.dtype
        kernel = self._kernel(problem, epsilon, dtype)
        if self.fixed_steps is not None:
            return self._fixed(kernel, target, tol, self.fixed_steps)
        low, high = kernel.lowest_and_highest()
        reach = (high - low) / epsilon
        if dtype != wide and max(reach, abs(low) / epsilon) * torch.finfo(dtype).eps > ROUNDING * tol:
            kernel = self._kernel(problem, epsilon, wide)
        if not reach < float("inf"):  # non-finite costs
            return _solution(kernel, target, torch.full_like(target, torch.nan), None, tol, 0, Result.OUT_OF_RANGE)
        steps = 0
        start: Tensor | None = None
        # A small epsilon is approached through larger ones, whose successive solutions are close to each other.
        scale = 1.0
        while reach / scale > FIRST_REACH * EPSILON_RATIO:
            scale *= EPSILON_RATIO
        kernel.keeps_cost |= scale > 1.0
        while scale > 1.0:
            kernel.epsilon = epsilon * scale
            end = self._ascend(kernel, target, start, low, reach / scale, LOOSE)
            steps += end.num_steps
            smaller = max(1.0, scale / EPSILON_RATIO)
            start, scale = end.log_scaling * (scale / smaller), smaller
        kernel.epsilon = epsilon
        end = self._ascend(kernel, target, start, low, reach, tol)
        return _solution(
            kernel,
            target,
            end.log_scaling,
            end.error,
            tol,
            steps + end.num_steps,
            end.result,
            end.scalings,
        )

    def _ascend(
        self, kernel: Kernel, target: Tensor, start: Tensor | None, low: float, reach: float, tol: float
    ) -> _AscentEnd:
        """Sweep, then take Newton steps, until the error is at most `tol` or `max_steps` is reached.

        `start` (b, N) are initial log scalings; None means those of `Kernel.absorb_lowest` or `absorb_minima`.
        """
        if start is not None:
            kernel.absorb(start)
        elif reach <= FLAT_REACH:
            kernel.absorb_lowest(low, target)
        else:
            kernel.absorb_minima(target.dtype)
        swept = sweep(kernel, target.to(kernel.dtype), tol=tol, max_steps=self.max_steps)
        if swept.worst <= tol:
            return _AscentEnd(swept.log_scaling, swept.num_steps, swept.error, Result.CONVERGED, swept.scalings)
        dual = _dual(kernel, target, fixed=False)
        state, result = ascend(dual, init(dual, swept.log_scaling), tol=tol, max_steps=self.max_steps)
        return _AscentEnd(state.current.log_scaling, swept.num_steps + state.num_steps, state.current.error, result)

    def _fixed(self, kernel: Kernel, target: Tensor, tol: float, num_steps: int) -> Solution:
        """Solve with a fixed number of steps, without reading values on the host."""
        kernel.absorb_minima(target.dtype)
        dual = _dual(kernel, target, fixed=True)
        assert kernel.base is not None
        start = _fixed_sweeps(kernel, target.to(kernel.dtype))
        state = fixed_ascent(dual, start, num_steps)
        last = state.current
        return _solution(kernel, target, last.log_scaling, last.error, tol, state.num_steps, None)


class _AscentEnd(NamedTuple):
    """Last point of an ascent, and how it ended.

    Attributes:
        log_scaling: (b, N).
        error: (b,), the marginal error.
        scalings: exp(log_scaling - base), k tensors (b, n_l), if already computed.
    """

    log_scaling: Tensor
    num_steps: int
    error: Tensor
    result: Result
    scalings: list[Tensor] | None = None


def _fixed_sweeps(kernel: Kernel, target: Tensor) -> Tensor:
    """Return log scalings (b, N) after a fixed number of sweeps."""
    assert kernel.base is not None
    h = kernel.lead
    targets = list(torch.split_with_sizes(target.unsqueeze(1), kernel.sizes, 2))
    parts_a, parts_b = ([torch.ones_like(part) for part in group] for group in (targets[:h], targets[h:]))
    products_b = suffix_products(parts_b)
    for _ in range(FIXED_SWEEPS):
        joints = reduced_joints(kernel.left_sums(products_b[0]), parts_a)
        parts_a, products_a = group_update(joints, targets[:h])
        joints = reduced_joints(kernel.right_sums(products_a[0]), parts_b)
        parts_b, products_b = group_update(joints, targets[h:])
    return kernel.base + torch.cat([*parts_a, *parts_b], 2).squeeze(1).log().to(kernel.base.dtype)


def _dual(kernel: Kernel, target: Tensor, *, fixed: bool) -> MarginalDual:
    return MarginalDual.of(TensorContraction(kernel), target, target.dtype, newton=True, fixed=fixed)


def _solution(
    kernel: Kernel,
    target: Tensor,
    log_scaling: Tensor,
    error: Tensor | None,
    tol: float,
    num_steps: int,
    result: Result | None,
    scalings: list[Tensor] | None = None,
) -> Solution:
    problem, epsilon = kernel.problem, kernel.epsilon
    potentials = log_scaling * epsilon
    value = ((potentials - epsilon / problem.k) * target).sum(1)
    error = torch.full_like(value, torch.nan) if error is None else error
    coupling = KernelCoupling(kernel, log_scaling, scalings)
    return Solution(
        problem=problem,
        epsilon=epsilon,
        value=value.to(problem.dtype).view(problem.batch),
        flat_potentials=potentials,
        error=error.to(problem.dtype).view(problem.batch),
        num_steps=num_steps,
        tol=tol,
        solver=Dense.name,
        coupling_form=coupling,
        reason=result,
        gradients=coupling.exchanged_gradients(problem),
    )
