"""What a solver is given: the cost of every k-tuple, in the form that shows its structure."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.costs.coupling import Coupling, Edge

AnyProblem = TypeVar("AnyProblem", bound="Problem")


def vector_dtype(device: torch.device) -> torch.dtype:
    """The type of potentials: vectors are cheap, so float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


class Problem(ABC):
    """A cost for every k-tuple (i_1, …, i_k), for each member of a batch.

    Inside, the batch is one leading axis b; `batch` keeps the shape the user gave. `tensors` are what the cost is
    a differentiable function of, and `gradient` is the derivative of ⟨P, C⟩ with respect to them at fixed P.
    """

    sizes: tuple[int, ...]
    batch: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    edges: Sequence[Edge] = ()
    """The pairs of views that carry a cost, where the cost is a sum over pairs; else none."""
    kernel_form: str | None = None
    """How the cost of some tuples is computed without that of all: "resultant", "log-resultant", "product", "pairs" or
    "sum" (see `m3g.solvers.sampled.log_kernel`); None where that is not known, so that it cannot be sampled."""
    factor: float = 1.0
    """What the cost is multiplied by, where its tensors are not."""

    @property
    def by_pairs(self) -> bool:
        """Whether the cost is a sum over pairs of views, so that pair marginals of a coupling are all it asks for."""
        return len(self.edges) > 0

    @property
    def complete(self) -> bool:
        """Whether every pair of views carries a cost of its own."""
        return len(self.edges) == self.k * (self.k - 1) // 2

    def with_tensors(self: AnyProblem, tensors: Sequence[Tensor]) -> AnyProblem:
        """The same cost of other tensors, of the same shapes."""
        out = copy.copy(self)
        out.tensors = tuple(tensors)
        return out

    def detached(self: AnyProblem) -> AnyProblem:
        """The same without gradients, of backward and of forward mode."""
        return self.with_tensors([tensor.detach() for tensor in self.tensors])

    def scaled(self: AnyProblem, weight: float) -> AnyProblem:
        """The same with the cost multiplied by a positive number."""
        out = copy.copy(self)
        out.factor = self.factor * weight
        return out

    @abstractmethod
    def select(self: AnyProblem, rows: Sequence[Tensor]) -> AnyProblem:
        """The problem of some points only: `rows` holds the indices to keep in each view. Differentiable."""

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
        """Costs of some points of view 0 with everything else: (b, rows, n_2, …, n_k), without a gradient."""

    def dense(self) -> Tensor:
        """The full cost tensor (b, n_1, …, n_k)."""
        return self.slab(slice(0, self.sizes[0]))

    @abstractmethod
    def matched(self) -> Tensor:
        """⟨J, C⟩, the mean cost of the true tuples: (b,), differentiable. Needs n_1 = … = n_k."""

    @abstractmethod
    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        """d⟨P, C⟩ / d tensors for a fixed coupling P, one tensor per entry of `tensors`, batched like it."""

    @abstractmethod
    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        """dC, when `tensors` move in these directions: {views: (b, n, …)}, terms to be broadcast and added up.

        Terms of one view alone may be left out, for they do not change the optimal coupling.
        """

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """How `gradient` changes when `tensors` move in these directions and P stays; here for costs linear in them."""
        return tuple(torch.zeros_like(tensor) for tensor in self.tensors)


class Cost(ABC):
    """What a k-tuple of points costs. Applied to views it gives the problem that a solver takes.

    Costs compose: `0.5 * a + 0.5 * b` is a weighted sum, `a[:16]` the cost of the first 16 features, normalised there.
    """

    @abstractmethod
    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> Problem:
        """The problem of these views, a tensor (..., k, n, d) or k tensors (..., n_l, d).

        Args:
            mask: bool (..., k, n), False for missing points, which have values already (a loss puts them at the mean
                of the object's other views); only a cost with another neutral value reads it.
            unit: all points are known to have length 1, which may save some work.
        """

    @property
    def linear(self) -> bool:
        """Whether the cost is linear in each view on the sphere, so that it defines a query."""
        return False

    @property
    def takes_means(self) -> bool:
        """Whether a loss puts a missing point at the mean of its object; else the cost has a neutral value for it."""
        return self.linear

    @property
    def joint(self) -> bool:
        """Whether it is linear in each view and no sum over pairs, so that its query is not a mean of the others."""
        return False

    def slope(self, k: int) -> float | None:
        r"""Return :math:`\varepsilon / \tau`, which converts a temperature into epsilon; None where it is undefined.

        Replacing one view of a true tuple on the sphere by z changes -c by slope · ⟨z, q⟩, with q the unit query of the
        other k - 1 views (`query`). So tau = epsilon / slope is the temperature of InfoNCE for every k.
        """
        return None

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return what view `view` of each object is searched with: vectors (..., n, e) made of its other views.

        For a cost that is linear in each view, the inner product of query and candidate is the score of the candidate
        in units of `slope`: -c = slope · ⟨candidate, query⟩ + a term of the other views.

        Args:
            views: (..., k, n, d), of which `view` itself is not read.
            view: the number of the view to search in.
            mask: bool (..., k, n), False for missing points, whose values are not read.

        Raises:
            ValueError: the cost is not linear in each view.
        """
        raise ValueError(f"cost must be linear in each view to define a query, got {self!r}.")

    def candidates(self, points: Tensor) -> Tensor:
        """Return the vectors (..., e) of points (..., d) whose inner products with `query` are their scores."""
        return points

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
            raise ValueError(f"features must be a range start:stop, got {features!r}.")
        return RestrictedCost(self, features.start, features.stop)
