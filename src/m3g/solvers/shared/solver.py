"""What every solver offers, so that callers never ask for its class."""

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
    """What `solver=` takes besides a name. A subclass has a `name` and writes `solve`.

    Attributes:
        fixed_steps: the number of steps it takes without reading a value on the host; None where it reads its error,
            so that callers may read it too.
        exact: whether it visits all n^k tuples, so that its cost grows like that.
    """

    name: str
    fixed_steps: int | None = None
    exact: bool = True

    @abstractmethod
    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        """The solution of a checked problem."""

    def check_epsilon(self, epsilon: float) -> float:
        """epsilon, if this solver takes it."""
        return _checks.positive("epsilon", epsilon)

    def decide(self, problem: Problem) -> str:
        """The name of the solver that solves this problem."""
        return self.name

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Solver:
        """The same with the seed that `draw` gives for its generator, if it draws at random and has no seed yet."""
        return self
