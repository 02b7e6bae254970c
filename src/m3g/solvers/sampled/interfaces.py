"""Interfaces of sampled kernels and of the couplings on them."""

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
    """Coupling on a list: one weight per row of the list and one per point.

    Attributes:
        log_factor: (b, 1), the log of the factor by which the weights were multiplied to reach the required mass.
        dense_pairs: whether all pair marginals cost no more than a few multiplications with the Hessian.
    """

    from_potentials = False  # P also depends on the samples
    log_factor: Tensor
    dense_pairs: bool

    @abstractmethod
    def marginals(self) -> Tensor:
        """Return all marginals, concatenated: (b, N), in float64."""

    @abstractmethod
    def pairs(self, edges: Sequence[Edge]) -> dict[Edge, Tensor]:
        """Return the pair marginals (b, n_l, n_m) of the given pairs of views."""

    @abstractmethod
    def sample_weights(self) -> Tensor:
        """Return the mass of every sample (b, s), without exact rows."""

    @abstractmethod
    def changed(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> ListedCoupling:
        """Return the derivative of the coupling in a direction (b, N) of log scalings, and of weights of rows."""

    def derivative(self, log_change: Tensor) -> Tensor:
        """Return the response of the marginals to a change (b, N) of the log scalings: the Hessian times the change."""
        return self.changed(log_change, None).marginals()

    @abstractmethod
    def draw(self, count: int, draws: Draws) -> Tensor:
        """Draw tuples (b, count, k) from the coupling."""


class Listed(ABC):
    """Kernel of k views represented by samples.

    Attributes:
        base: log scalings (b, N) absorbed in the tables.
        exact: whether nothing was sampled, so that the list is the kernel.
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
        """The tuples (b, s, k) if it is a list of tuples, otherwise None."""
        return None

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @abstractmethod
    def based(self, log_scaling: Tensor) -> Any:
        """Return the list with these log scalings (b, N) absorbed in its tables, so that they are in range."""

    @abstractmethod
    def at(self, log_scaling: Tensor, mass: Tensor) -> ListedCoupling:
        """Return the coupling of these log scalings (b, N), scaled to the given mass (b, 1)."""

    @abstractmethod
    def halves(self) -> list[Tensor]:
        """Return +1 on the rows of the first half of the samples, -1 on those of the second, 0 on exact rows."""

    @abstractmethod
    def doubts(self) -> list[str]:
        """Return reasons not to trust a solution on this list, regardless of its error; usually empty."""


# Constructor of a list: log kernel, centres (b, r, k), log scalings (b, N), draws per centre, random numbers, and
# tuples that it must contain.
Build = Callable[[LogKernel, Tensor, Tensor, int, Draws, Tensor], Listed]
