"""Interfaces of costs and problems. A problem is the input of a solver: the cost of every k-tuple of points."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.coupling import Coupling, Edge

AnyProblem = TypeVar("AnyProblem", bound="Problem")


def vector_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of potentials and other vectors: float64 if the device supports it."""
    return torch.float32 if device.type == "mps" else torch.float64


class Slabs(Protocol):
    """Tensor (b, n_1, …, n_k) that is computed slab by slab."""

    def slab(self, rows: slice) -> Tensor:
        """Return (b, rows, n_2, …, n_k) as a new tensor."""


class Problem(ABC):
    """Cost tensor C of a batch of problems, usually in a structured form.

    Internally the batch is one leading axis of length b. The cost is a differentiable function of `tensors`, and
    `gradient` is the derivative of ⟨P, C⟩ with respect to them at fixed P.

    Attributes:
        sizes: numbers of points n_1, …, n_k.
        batch: batch shape of the user's tensors; its product is b.
        tensors: the tensors on which the cost depends, such as the points of all views.
    """

    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    edges: Sequence[Edge] = ()
    """The pairs of views (l, m) with a cost, if the cost is a sum over pairs; otherwise empty."""
    kernel_form: str | None = None
    """Structure that the sampled solver uses to compute the cost of single tuples: "resultant", "log-resultant",
    "product", "pairs" or "sum" (see `m3g.solvers.sampled.log_kernel`); None if the problem cannot be sampled."""
    factor: float = 1.0
    """Factor that multiplies the cost computed from `tensors`."""
    new_slabs: bool = False
    """Whether `slab` returns a new tensor at every call, so that the caller may overwrite it."""
    reads_coupling_once: bool = False
    """Whether `gradient` reads the full tensor of a coupling only once, so that a dense coupling may be overwritten."""
    least_argument: float = 0.0
    """The minimum x0 of x in `log_argument`."""

    @property
    def by_pairs(self) -> bool:
        """Whether the cost is a sum over pairs of views, so that the pair marginals of a coupling are sufficient."""
        return len(self.edges) > 0

    @property
    def complete(self) -> bool:
        """Whether every pair of views has a cost."""
        return len(self.edges) == self.k * (self.k - 1) // 2

    def with_tensors(self: AnyProblem, tensors: Sequence[Tensor]) -> AnyProblem:
        """Return the problem with other tensors of the same shapes."""
        out = copy.copy(self)
        out.tensors = tuple(tensors)
        return out

    def detached(self: AnyProblem) -> AnyProblem:
        """Return the problem with tensors that have no backward- or forward-mode derivatives."""
        return self.with_tensors([tensor.detach() for tensor in self.tensors])

    def scaled(self: AnyProblem, weight: float) -> AnyProblem:
        """Return the problem with the cost multiplied by a positive number."""
        out = copy.copy(self)
        out.factor = self.factor * weight
        return out

    @abstractmethod
    def select(self: AnyProblem, rows: Sequence[Tensor]) -> AnyProblem:
        """Return the problem restricted to the points `rows[l]` of each view l, differentiable in `tensors`."""

    @property
    def k(self) -> int:
        return len(self.sizes)

    @property
    def num_batch(self) -> int:
        return math.prod(self.batch)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    @property
    def num_tuples(self) -> int:
        return math.prod(self.sizes)

    @abstractmethod
    def slab(self, rows: slice) -> Tensor:
        """Return the costs of the tuples whose first point is in `rows`: (b, rows, n_2, …, n_k), detached."""

    def log_argument(self) -> Slabs | None:
        """Return x if the cost is C = -factor · log max(x, x0) with x0 = `least_argument`; otherwise None."""
        return None

    def dense(self) -> Tensor:
        """Return the full cost tensor (b, n_1, …, n_k)."""
        return self.slab(slice(0, self.sizes[0]))

    @abstractmethod
    def matched(self) -> Tensor:
        """Return the cost ⟨J, C⟩ of the true matching (b,), differentiable. All views must have the same size."""

    @abstractmethod
    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        """Return d⟨P, C⟩ / d tensors for a fixed coupling P, with the shapes of `tensors`."""

    @abstractmethod
    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        """Return the derivative of C along `directions`, which have the shapes of `tensors`.

        It is a sum of terms {views: (b, n, …)}, each of which depends on these views only. Terms of one view may be
        omitted, because they do not change the optimal coupling.
        """

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the derivative of `gradient` along `directions` at fixed P; 0 for costs that are linear in `tensors`.

        Costs that are not linear override this method.
        """
        return tuple(torch.zeros_like(tensor) for tensor in self.tensors)


class Cost(ABC):
    """Cost of a k-tuple of points. Calling it with views returns a `Problem`.

    Costs compose: `0.5 * a + 0.5 * b` is a weighted sum, and `a[:16]` is the cost of the first 16 features of each
    point, scaled to unit length.
    """

    @abstractmethod
    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> Problem:
        """Return the problem of these views, a tensor (..., k, n, d) or k tensors (..., n_l, d).

        Args:
            mask: bool (..., k, n), False for missing points. Only costs with a neutral value for missing points use it;
                for other costs, losses impute missing points beforehand.
            unit: whether all points have unit length, which may save computation.
        """

    @property
    def linear(self) -> bool:
        """Whether the cost of unit vectors is linear in each view, so that it defines a query."""
        return False

    def of_imputed(self, views: Views, mask: Tensor) -> Problem:
        """Return the problem of views in which `M3GLoss` has replaced every missing point by a mean of present points.

        By default, a linear cost treats imputed points like all others. Other costs receive the mask, so that they can
        use a neutral value instead.
        """
        return self(views, mask=None if self.linear else mask)

    @property
    def joint(self) -> bool:
        """Whether the cost is linear in each view but not a sum over pairs, so that its query is not a mean."""
        return False

    def slope(self, k: int) -> float | None:
        r"""Return :math:`\varepsilon / \tau`, epsilon per unit of the temperature :math:`\tau`; None if undefined.

        As a function of one point z of a tuple of unit vectors, -c = slope · ⟨z, q⟩ + constant, where q is the query of
        the other k - 1 points (`query`). For a cost that is not linear, this holds to first order at equal points.
        Hence epsilon / slope is a temperature :math:`\tau` in the units of InfoNCE for every k.
        """
        return None

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return the query of each object for a search in view `view`: (..., n, e), computed from its other views.

        For a cost that is linear in each view, -c = slope · ⟨candidate, query⟩ plus a term of the other views, so the
        inner product of candidate and query is the score of the candidate. Queries and `candidates` have e features:
        e = d, except that a `SumCost` concatenates the features of its terms, and a restricted cost has fewer.

        Args:
            views: (..., k, n, d); the entries of `view` itself are not read.
            view: index of the view to search in.
            mask: bool (..., k, n), False for missing points, whose values are not read.

        Raises:
            ValueError: the cost is not linear in each view.
        """
        raise ValueError(f"cost must be linear in each view to define a query, got {self!r}.")

    def candidates(self, points: Tensor) -> Tensor:
        """Return the vectors (..., e) that represent points (..., d) in a search.

        The inner product of such a vector with a `query` is the score of its point.
        """
        return points

    # NumPy numbers on the left then use `__rmul__` instead of making an array of costs.
    __array_ufunc__ = None

    def __add__(self, other: Cost) -> Cost:
        from m3g.costs.composed import SumCost

        return SumCost.of([(1.0, self), (1.0, other)])

    def __mul__(self, weight: float) -> Cost:
        from m3g.costs.composed import SumCost

        return SumCost.of([(weight, self)])

    __rmul__ = __mul__

    def __getitem__(self, features: slice) -> Cost:
        from m3g.costs.composed import RestrictedCost

        if not isinstance(features, slice) or features.step is not None:
            raise ValueError(f"features must be a range start:stop, got {_checks.shown(features)}.")
        return RestrictedCost(self, features.start, features.stop)
