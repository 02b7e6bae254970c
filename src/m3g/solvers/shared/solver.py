"""Interface of solvers; callers must not dispatch on the class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem

if TYPE_CHECKING:
    from m3g.solvers.solution import Solution


class Solver(ABC):
    """Base class of solvers. A subclass has a `name` and implements `solve`.

    Attributes:
        fixed_steps: number of steps without reading a value on the host; None if the solver reads its error, so that
            callers may read it too.
        exact: whether all n^k tuples are visited, so that the complexity is O(n^k).
    """

    name: str
    fixed_steps: int | None = None
    exact: bool = True

    @abstractmethod
    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        """Solve a validated problem."""

    def check_epsilon(self, epsilon: float) -> float:
        """Return epsilon if it is supported, otherwise raise."""
        return _checks.positive("epsilon", epsilon)

    def decide(self, problem: Problem) -> str:
        """Return the name of the solver that solves this problem."""
        return self.name

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Solver:
        """Return the solver with the seed that `draw` returns for its generator, if it is random and has no seed."""
        return self
