"""What the rounds ask of a kernel known through samples, and of the coupling on it, whatever form they have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from m3g.costs import Coupling
from m3g.costs.coupling import Edge
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel


class ListedCoupling(Coupling):
    """A coupling on a list: a weight for every row of it, and one for every point.

    Attributes:
        log_factor: (b, 1), the log of what the weights were multiplied by to reach the mass asked for.
        dense_pairs: all pair marginals cost no more than a few multiplications with the Hessian.
    """

    from_potentials = False  # P also depends on the samples
    log_factor: Tensor
    dense_pairs: bool

    @abstractmethod
    def marginals(self) -> Tensor:
        """All marginals, one after the other: (b, N), in float64."""

    @abstractmethod
    def pairs(self, edges: Sequence[Edge]) -> dict[Edge, Tensor]:
        """Joint marginals (b, n_l, n_m) of the given pairs of views."""

    @abstractmethod
    def sample_weights(self) -> Tensor:
        """The mass of every sample (b, s); rows that are exact are not among them."""

    @abstractmethod
    def changed(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> ListedCoupling:
        """The derivative of the coupling in a direction (b, N) of log scalings, and of weights of rows."""

    def derivative(self, log_change: Tensor) -> Tensor:
        """How the marginals answer to a small change (b, N) of the log scalings: the Hessian of the dual."""
        return self.changed(log_change, None).marginals()

    @abstractmethod
    def draw(self, count: int, draws: Draws) -> Tensor:
        """Tuples (b, count, k) of the coupling."""


class Listed(ABC):
    """A kernel of k views known through samples.

    Attributes:
        base: log scalings (b, N) that the tables hold.
        exact: nothing was sampled: the list is the kernel.
    """

    base: Tensor
    exact: bool

    @property
    @abstractmethod
    def sizes(self) -> list[int]: ...

    @property
    def k(self) -> int:
        return len(self.sizes)

    @property
    def tuples(self) -> Tensor | None:
        """The tuples (b, s, k) in it, where it is a list of them."""
        return None

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @abstractmethod
    def based(self, log_scaling: Tensor) -> Any:
        """The list with these log scalings (b, N) in its tables, so that what they hold is in the range of its type."""

    @abstractmethod
    def at(self, log_scaling: Tensor, mass: Tensor) -> ListedCoupling:
        """The coupling of these log scalings (b, N), scaled to the given mass (b, 1)."""

    @abstractmethod
    def halves(self) -> list[Tensor]:
        """+1 on the rows of the first half of the samples, -1 on those of the second, 0 on rows that are exact."""

    @abstractmethod
    def doubts(self) -> list[str]:
        """Why a solution on this list is not to be trusted, whatever its error looks like; mostly nothing."""


# How a list is made: log kernel, centres (b, r, k), log scalings (b, N), draws of each centre, random numbers, and
# tuples that must be in it.
Build = Callable[[LogKernel, Tensor, Tensor, int, Draws, Tensor], Listed]
