"""`solve`, which validates a problem and calls a solver, and the registry of solvers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeAlias

from torch import Tensor

from m3g import _checks
from m3g._options import typed
from m3g.costs import DenseProblem, Problem
from m3g.solvers.auto import Auto
from m3g.solvers.dense.solver import Dense
from m3g.solvers.factored.solver import Factored
from m3g.solvers.gradients.value import differentiable_value
from m3g.solvers.linear_program import LinearProgram
from m3g.solvers.sampled.solver import Sampled
from m3g.solvers.shared.solver import Solver
from m3g.solvers.shared.weights import marginal_weights
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution
from m3g.solvers.support import Support

# A solver, its name, or a mapping `{"name": ..., field: value, ...}`; None is "auto".
SolverLike: TypeAlias = str | Mapping[str, object] | Solver | None
# Weight below which a problem is solved in float64.
MIN_FLOAT32_WEIGHT = 1e-20
# If the sum of the weights differs from 1 by more than this, the weights are divided by their sum, and the solution is
# multiplied by that sum.
UNIT_SUM_ATOL = 1e-4

SOLVERS: dict[str, type[Solver]] = {
    "auto": Auto,
    "sinkhorn": Sinkhorn,
    "factored": Factored,
    "dense": Dense,
    "sampled": Sampled,
    "linear-program": LinearProgram,
}


def as_solver(solver: SolverLike) -> Solver:
    """Return the solver that an argument describes.

    Example:
        >>> as_solver({"name": "sampled", "rank": 512}).rank
        512
    """
    if solver is None or isinstance(solver, Solver):
        return solver or Auto()
    if isinstance(solver, str) and solver in SOLVERS:
        return SOLVERS[solver]()
    options = dict(solver) if isinstance(solver, Mapping) else {"name": solver}
    kind = SOLVERS[_checks.one_of("solver", options.pop("name", solver), SOLVERS)]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(map(str, set(options) - set(known)))
    if unknown:
        raise ValueError(
            f"solver {kind.name!r} must have only the options {', '.join(known)}, got {', '.join(unknown)}."
        )
    typed(kind, options, prefix="solver: ")
    return kind(**options)


def solve(
    problem: Problem | Tensor,
    *,
    epsilon: float,
    tol: float = 1e-3,
    solver: SolverLike = "auto",
    weights: Sequence[Tensor] | None = None,
    differentiable: bool = False,
) -> Solution:
    r"""Solve entropic multi-marginal optimal transport: find the best polymatching (Eq. 8 of the paper).

    .. math:: \min_{P \geq 0} \; \langle P, C\rangle + \varepsilon \langle P, \log P - 1\rangle
        \quad \text{subject to} \quad m_l(P) = a_l, \quad l = 1, \dots, k

    where :math:`P` and the costs :math:`C` are tensors (n_1, …, n_k), :math:`m_l(P)` is the marginal of view l, and
    :math:`a_l` are the weights of its points.

    Args:
        problem: a cost applied to views, such as `CircularVariance()(views)`, or a dense cost tensor (n_1, …, n_k).
        epsilon: weight of the entropy, > 0 (must be 0 with solver="linear-program").
        tol: stop when the marginal error Σ_l |m_l(P) - a_l|_1 is at most this fraction of the mass Σ_i a_l[i], which
            is 1 without `weights`.
        solver: "auto", "factored", "dense", "sampled", "sinkhorn", "linear-program", an object such as
            `Factored(newton=False)`, or a mapping of a name and options such as `{"name": "sampled", "rank": 512}`.
        weights: k tensors a_l (n_l), or (..., n_l) for a batch, with a common sum; 1 / n_l by default. The potential of
            a point of weight 0 is minus infinity. If a positive weight is less than 1e-20 times the sum, the solve
            and its results are in float64.
        differentiable: make `value`, `pair_marginal` and `coupling` of the solution differentiable with respect to the
            cost: `value` by Danskin's theorem, the others by the implicit function theorem, with an error of the order
            of `tol`. With "sampled" and "linear-program", only `value` is differentiable.

    Returns:
        A `Solution`. Check `converged` before using it.

    Complexity per step, for k views of n points: O(n^k) for "factored" and "dense", O(k² n^k) for "sinkhorn", and
    O(k n d R) for "sampled" of rank R, or O(k² n R) for a `PairwiseCost`. "factored" and "dense" usually take fewer
    than 20 steps. The number of sweeps of "sinkhorn" is at most of the order of 1 / (eps · tol). The docstring of each
    solver has details. `m3g.workload` predicts operations and memory.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(3, 16, 8), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, tol=1e-6)
        >>> solution.converged, tuple(solution.pair_marginal(0, 2).shape)
        (True, (16, 16))
        >>> torch.allclose(solution.marginal(1), torch.full((16,), 1 / 16), atol=1e-6)
        True

    References: Piran et al., ICML 2024 :cite:`piran2024`; Lin et al., 2022 :cite:`lin2022`, for the complexity.
    """
    if isinstance(problem, Tensor):
        _checks.readable("problem", problem)
        if problem.ndim < 2 or problem.numel() == 0 or not problem.is_floating_point():
            raise ValueError(
                "problem must be a non-empty floating point tensor with k >= 2 axes, "
                f"got {problem.dtype} of shape {tuple(problem.shape)}."
            )
        problem = DenseProblem(problem.to(_checks.working_dtype(problem.dtype)))
    elif not isinstance(problem, Problem):
        raise ValueError(f"problem must be a cost applied to views or a dense tensor, got {type(problem).__name__}.")
    chosen, tol = as_solver(solver), _checks.positive("tol", tol)
    differentiable = _checks.flag("differentiable", differentiable)
    if chosen.fixed_steps is None:
        for tensor in problem.tensors:
            _checks.not_vmapped("problem", tensor)
    target_weights = marginal_weights(weights, problem.sizes, problem.batch, problem.device)
    mass = None if target_weights is None else target_weights[0].sum(-1)
    if target_weights is not None and mass is not None and bool(((mass - 1).abs() > UNIT_SUM_ATOL).any()):
        target_weights = [weight / mass.unsqueeze(-1) for weight in target_weights]
    else:
        mass = None
    support = Support.of(target_weights)
    if support is not None and target_weights is not None:
        problem, target_weights = support.restricted(problem, target_weights)
    if target_weights is not None and min(float(weight.min()) for weight in target_weights) < MIN_FLOAT32_WEIGHT:
        # The scalings of such points exceed the range of float32.
        problem = problem.with_tensors([tensor.double() for tensor in problem.tensors])
    epsilon = _checks.in_range_of(problem.dtype, chosen.check_epsilon(epsilon))
    if mass is not None:
        for total in (float(mass.min()), float(mass.max())):
            _checks.in_range_of(problem.dtype, total * epsilon, "epsilon times the sum of the weights")
    solution = chosen.solve(problem, epsilon=epsilon, tol=tol, weights=target_weights)
    if mass is not None:
        solution = solution.in_units_of(problem, mass.reshape(-1))
    if chosen.fixed_steps is None and not solution.converged:
        # Costs are validated only if the solve failed, because validation reads all entries.
        for tensor in problem.tensors:
            _checks.finite_tensor("problem", tensor.detach())
    if differentiable:
        solution = replace(solution, value=differentiable_value(solution), differentiable=True)
    return solution if support is None else support.padded(solution)
