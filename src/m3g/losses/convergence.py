"""Outcome of the solve inside a loss: a report for logs, and a warning or an error if it did not converge."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor

from m3g.solvers import Result
from m3g.solvers.solution import Solution


class ConvergenceWarning(UserWarning):
    """The solver stopped before the marginals were within its tolerance."""


@dataclass(frozen=True)
class SolveReport:
    """Summary of a solve, for logs.

    Attributes:
        num_steps: number of solver steps.
        epsilon: epsilon of the solve.
        error: L1 error of the marginals, in the batch shape of the problem.
        solver: name of the solver that ran.
        standard_error: standard error of the value; None unless the solver samples.
        relative_gradient_error: standard error of the gradient divided by its norm; None unless the solver samples.
    """

    num_steps: int
    epsilon: float
    error: Tensor
    solver: str
    standard_error: Tensor | None = None
    relative_gradient_error: Tensor | None = None

    @classmethod
    def from_solution(cls, solution: Solution) -> SolveReport:
        """Return the summary of a solution."""
        return cls(
            solution.num_steps,
            solution.epsilon,
            solution.error,
            solution.solver,
            solution.standard_error,
            solution.relative_gradient_error,
        )


def raise_or_warn(solution: Solution) -> None:
    """Raise if the solve failed, and warn if it stopped early; with `Result.UNTRUSTED`, the solver has warned."""
    if solution.result is Result.UNTRUSTED:
        return
    if solution.result is Result.OUT_OF_RANGE:
        raise FloatingPointError(
            f"solver {solution.solver!r} exceeded the range of its dtype at epsilon={solution.epsilon:g}: "
            "use a larger epsilon, or solver='sinkhorn'."
        )
    consequence = (
        "the computed gap is an upper bound" if solution.standard_error is None else "the loss may be inaccurate"
    )
    warnings.warn(
        f"solver {solution.solver!r} stopped before its marginals were within tol={solution.tol:g} at "
        f"epsilon={solution.epsilon:g}: {consequence}, and its gradient is approximate; "
        "use more steps or a larger epsilon.",
        ConvergenceWarning,
        stacklevel=4,
    )
