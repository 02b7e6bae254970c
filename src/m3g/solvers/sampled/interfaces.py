"""Interfaces of sampled kernels and of their couplings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor

from m3g.costs import Coupling
from m3g.costs.coupling import Edge
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel


class SampledCoupling(Coupling):
    """Coupling of a sampled kernel: the kernel times a scaling per point.

    Attributes:
        log_factor: (b, 1), the logarithm of the factor that was applied to obtain the required mass.
        dense_pairs: whether computing all pair marginals costs no more than a few products with the Hessian.
    """

    from_potentials = False  # the coupling also depends on the samples
    log_factor: Tensor
    dense_pairs: bool

    @abstractmethod
    def marginals(self) -> Tensor:
        """Return all marginals, concatenated: (b, N), in float64 if the device supports it."""

    @abstractmethod
    def pairs(self, edges: Sequence[Edge]) -> dict[Edge, Tensor]:
        """Return the pair marginals (b, n_l, n_m) of the given pairs of views."""

    @abstractmethod
    def sample_weights(self) -> Tensor:
        """Return the mass of every sample: (b, s). Rows that were not sampled are excluded."""

    @abstractmethod
    def directional_derivative(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> SampledCoupling:
        """Return the derivative of the coupling as a signed measure.

        Args:
            log_change: direction (b, N) of the log scalings.
            row_factors: direction of the logarithms of the row weights, in the format of
                `SampledKernel.half_signs`; None means 0.
        """

    def hessian_product(self, log_change: Tensor) -> Tensor:
        """Return H x for x (b, N), where the Hessian H is the derivative of the marginals in the log scalings."""
        return self.directional_derivative(log_change, None).marginals()

    @abstractmethod
    def draw(self, count: int, draws: Draws) -> Tensor:
        """Draw tuples (b, count, k) from the coupling."""


class SampledKernel(ABC):
    """Representation of a kernel by rows, each of which represents many tuples. Most rows are sampled, unless `exact`.

    A row is a tuple with one open view (tuple_kernel.py) or a weighted product over the views (product_kernel.py). From
    the rows, tables of numbers are computed, from which a coupling is obtained at any log scalings.

    Attributes:
        base: log scalings (b, N) absorbed in the tables.
        exact: whether all tuples are enumerated and nothing is sampled.
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
        """The tuples (b, s, k) if each row is a tuple with one open view, otherwise None."""
        return None

    @property
    def total(self) -> int:
        """The number N of points of all views."""
        return sum(self.sizes)

    @abstractmethod
    def with_base(self, log_scaling: Tensor) -> SampledKernel:
        """Return the kernel with these log scalings (b, N) absorbed in its tables, which keeps numbers in range."""

    @abstractmethod
    def coupling_at(self, log_scaling: Tensor, mass: Tensor) -> SampledCoupling:
        """Return the coupling at these log scalings (b, N), multiplied by a factor that gives it the mass (b, 1)."""

    @abstractmethod
    def half_signs(self) -> list[Tensor]:
        """Return +1 for rows of the first half of the samples, -1 for the second, 0 for rows that were not sampled.

        The result has one tensor (b, s) per block of rows.
        """

    @abstractmethod
    def untrusted_reasons(self) -> list[str]:
        """Return reasons not to trust a solution with this kernel, regardless of its error; usually empty."""


# Function that draws a kernel. Arguments: log kernel, centres (b, r, k), log scalings (b, N), draws per centre, source
# of random numbers, and tuples (b, c, k) that the kernel must contain.
Build = Callable[[LogKernel, Tensor, Tensor, int, Draws, Tensor], SampledKernel]
