"""Interface of solvers, and the status of a solve. Callers must not dispatch on the class of a solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem

if TYPE_CHECKING:
    from m3g.solvers.solution import Solution


class Result(Enum):
    """Status of a solve; the value of a member is its message.

    Example:
        >>> import torch, m3g
        >>> solution = m3g.solve(torch.rand(4, 4, 4), epsilon=0.5)
        >>> solution.result is m3g.Result.CONVERGED, solution.result.value
        (True, 'the marginals are within tol of the weights')
    """

    CONVERGED = "the marginals are within tol of the weights"
    ESTIMATED = "the marginals of a sampled kernel are within tol of the weights, and the value has a standard error"
    OUT_OF_STEPS = "the solver stopped before the marginals were within tol of the weights"
    OUT_OF_RANGE = "a number exceeded the range of its dtype"
    UNTRUSTED = "the estimated error of a sampled solution is too large, or a validation sample contradicts it"


class Solver(ABC):
    """Base class of solvers. A subclass has a `name` and implements `solve`.

    Attributes:
        name: the name of the solver in `solver=` and `Solution.solver`.
        fixed_steps: number of steps of a solver that reads no value on the host; None if the solver reads its error.
        exact: whether the solver uses all n^k tuples.
        distributable: whether `Sharded` can divide a solve among processes.
    """

    name: str
    fixed_steps: int | None = None
    exact: bool = True
    distributable: bool = False

    @abstractmethod
    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        """Solve a validated problem; `weights` are k tensors with sum 1, or None for uniform weights."""

    def validate(self, check: Callable[[str, Any], object], *fields: str) -> None:
        """Replace the value of each of these fields of a frozen dataclass by `check(field, value)`.

        None is valid for a field whose default is None.
        """
        for field in fields:
            value = getattr(self, field)
            if value is not None or getattr(type(self), field) is not None:
                object.__setattr__(self, field, check(field, value))

    def check_epsilon(self, epsilon: float) -> float:
        """Return epsilon if the solver supports it, otherwise raise."""
        return _checks.positive("epsilon", epsilon)

    def decide(self, problem: Problem) -> Solver:
        """Return the solver that would solve this problem."""
        return self

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Solver:
        """Return the solver; if it draws at random and has no seed, its seed is set to `draw(generator)`."""
        return self
