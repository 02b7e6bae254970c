"""Unregularised solver (epsilon = 0): an assignment problem or a linear program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.couplings import SparseCoupling
from m3g.solvers.shared.solver import Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution


@dataclass(frozen=True)
class LinearProgram(Solver):
    r"""Unregularised solver: the coupling of lowest cost (Eq. 8 of the paper with ε = 0), on the CPU in float64.

    .. math:: \min_{P \geq 0} \; \langle P, C\rangle \quad \text{subject to} \quad m_l(P) = a_l, \quad l = 1, \dots, k

    where P and C have shape (n_1, …, n_k), and the marginals :math:`m_l(P)` and the weights :math:`a_l` shape (n_l).

    Two views of equal size without `weights` are an assignment problem. Other problems are linear programs with n^k
    unknowns and Σ n_l constraints, solved by HiGHS. Their size is limited by `max_tuples`. `Solution.num_steps` is 1.

    Complexity: O(n³) for an assignment problem. The constraints of a linear program have k n^k non-zero coefficients,
    and the simplex method has an exponential worst case.

    Args:
        max_tuples: maximum number of tuples n^k of a linear program.

    Example:
        >>> import torch, m3g
        >>> cost = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> m3g.solve(cost, epsilon=0, solver="linear-program").coupling()
        tensor([[0.0000, 0.5000],
                [0.5000, 0.0000]])

    References: Piran et al., ICML 2024 :cite:`piran2024`; Huangfu and Hall, 2018 :cite:`huangfu2018`, for HiGHS.
    """

    max_tuples: int = 500_000

    name = "linear-program"

    def __post_init__(self) -> None:
        self.validate(_checks.positive_int, "max_tuples")

    def check_epsilon(self, epsilon: float) -> float:
        if _checks.plain(epsilon) != 0 or isinstance(epsilon, bool):
            raise ValueError(f"epsilon must be 0 with solver='linear-program', got {epsilon!r}.")
        return 0.0

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if problem.num_batch != 1:
            raise ValueError(
                f"problem must not be a batch with solver='linear-program', got {problem.num_batch} problems."
            )
        with torch.no_grad():
            cost = problem.dense()[0].double().cpu().numpy()
        if problem.k == 2 and weights is None and problem.sizes[0] == problem.sizes[1]:
            try:
                tuples, mass, potentials = assignment(cost)
            except ValueError:  # too many infinite costs, or NaN
                _checks.finite_tensor("problem", torch.from_numpy(cost))
                raise
            target = np.full(sum(problem.sizes), 1 / problem.sizes[0])
        else:
            if problem.num_tuples > self.max_tuples:
                raise ValueError(
                    f"problem must have at most {self.max_tuples} tuples with solver='linear-program', unless it is an "
                    f"assignment problem, got {problem.num_tuples}: use fewer points, or an entropic solver with small "
                    "epsilon."
                )
            _checks.finite_tensor("problem", torch.from_numpy(cost))
            target = concatenated_weights(problem, weights)[0].cpu().numpy()
            tuples, mass, potentials = linear_program(cost, target)
        value = float((cost[tuple(tuples.T)] * mass).sum())
        error = marginal_error(tuples, mass, target, problem.sizes)
        mass_tensor = torch.as_tensor(mass, dtype=problem.dtype, device=problem.device)
        coupling = SparseCoupling(problem, torch.as_tensor(tuples, device=problem.device), mass_tensor)
        return Solution(
            problem=problem,
            epsilon=0.0,
            value=mass_tensor.new_tensor(value).reshape(problem.batch),
            flat_potentials=torch.as_tensor(
                np.concatenate(potentials), dtype=vector_dtype(problem.device), device=problem.device
            ).unsqueeze(0),
            error=mass_tensor.new_tensor(error).reshape(problem.batch),
            num_steps=1,
            tol=tol,
            solver=self.name,
            coupling_form=coupling,
        )


def marginal_error(tuples: np.ndarray, mass: np.ndarray, target: np.ndarray, sizes: Sequence[int]) -> float:
    """Return Σ_l |m_l(P) - a_l|_1 for the coupling with this mass on these tuples (s, k)."""
    marginals = [np.bincount(tuples[:, l], mass, minlength=n) for l, n in enumerate(sizes)]
    return float(np.abs(np.concatenate(marginals) - target).sum())


def assignment(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return tuples (n, 2), their mass (n,) and the potentials of a square two-view problem with uniform weights."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    n = len(rows)
    # Potentials f, g with f_i + g_j <= c_ij, and equality for matched pairs: shortest paths by Bellman–Ford.
    reduced = cost - cost[np.arange(n), columns][:, None]
    matched_g = np.zeros(n)  # g of the column matched to row i
    for _ in range(n):
        shorter = np.minimum(matched_g, (reduced[:, columns] + matched_g[:, None]).min(0))
        if np.allclose(shorter, matched_g, rtol=0, atol=1e-14):
            break
        matched_g = shorter
    g = np.empty(n)
    g[columns] = matched_g
    f = cost[np.arange(n), columns] - matched_g
    return np.stack([rows, columns], 1), np.full(n, 1 / n), [f, g]


def linear_program(cost: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return tuples (s, k), their mass (s,) and the potentials of a problem, by linear programming.

    The linear program has one unknown per tuple and one equation per point, with right-hand side `target` (N,).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    index = np.indices(cost.shape).reshape(cost.ndim, -1)
    starts = np.concatenate([[0], np.cumsum(cost.shape)[:-1]])
    rows = (index + starts[:, None]).ravel()
    columns = np.tile(np.arange(cost.size), cost.ndim)
    equations = coo_array((np.ones(rows.size), (rows, columns)), shape=(len(target), cost.size)).tocsr()
    # HiGHS uses absolute tolerances, so weights are divided by their mean. They are also scaled to exactly the same sum
    # in every view, because the system would be infeasible otherwise.
    unit = float(target.mean())
    parts = np.split(target / unit, np.cumsum(cost.shape)[:-1])
    right = np.concatenate([part * (parts[0].sum() / part.sum()) for part in parts])
    result = linprog(cost.ravel(), A_eq=equations, b_eq=right, method="highs", options={"presolve": True})
    if not result.success:
        result = linprog(cost.ravel(), A_eq=equations, b_eq=right, method="highs-ds", options={"presolve": False})
    if not result.success:
        raise ValueError(
            "weights must be in a range that HiGHS supports with solver='linear-program', "
            f"got {right.min() * unit:.2g} to {right.max() * unit:.2g} ({result.message.strip()})."
        )
    mass = np.maximum(result.x, 0.0) * unit
    used = np.flatnonzero(mass > 0)
    potentials = np.split(result.eqlin.marginals, np.cumsum(cost.shape)[:-1])
    return index[:, used].T.copy(), mass[used], potentials
