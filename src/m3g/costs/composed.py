"""Composed costs: weighted sums, and costs restricted to a range of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.circular import flatten_batch
from m3g.costs.coupling import Coupling, Edge
from m3g.costs.grounds import unit_or_zero
from m3g.costs.pairwise_problem import LogKernels, PairwiseProblem
from m3g.costs.problem import Cost, Problem

AnySum = TypeVar("AnySum", bound="SumProblem")
# Minimum number of tuples for which the cost tensor of a sum is computed in slabs.
LARGE = 2**16


@dataclass(frozen=True)
class SumCost(Cost):
    r"""Weighted sum of costs, :math:`c = \sum_i w_i c_i` with positive weights, written `0.5 * a + 0.5 * b`.

    A sum of pairwise costs is itself a pairwise cost, so solver="factored" supports it.

    Shapes are those of the terms, and the complexity is the sum over the terms.

    Args:
        terms: pairs (w_i, c_i).

    Example:
        >>> import torch, m3g
        >>> cost = 0.5 * m3g.CircularVariance() + 0.5 * m3g.MultilinearProduct()
        >>> cost
        0.5 * CircularVariance(scale='definition') + 0.5 * MultilinearProduct()
        >>> (2 * m3g.CircularVariance() + m3g.PairwiseCost("cosine"))(torch.eye(4).expand(3, 4, 4)).by_pairs
        True
    """

    terms: tuple[tuple[float, Cost], ...]

    def __post_init__(self) -> None:
        for _, cost in self.terms:
            if not isinstance(cost, Cost):
                raise ValueError(f"every term of a sum must be a cost, got {type(cost).__name__}.")
        terms = tuple((_checks.positive("the weight of a cost", weight), cost) for weight, cost in self.terms)
        object.__setattr__(self, "terms", terms)

    @staticmethod
    def of(terms: Sequence[tuple[float, Cost]]) -> SumCost:
        """Return the sum of these terms; nested sums are flattened."""
        flattened: list[tuple[float, Cost]] = []
        for weight, cost in terms:
            inner = cost.terms if isinstance(cost, SumCost) else ((1.0, cost),)
            weight = _checks.positive("the weight of a cost", weight)
            flattened += [(weight * inner_weight, inner_cost) for inner_weight, inner_cost in inner]
        return SumCost(tuple(flattened))

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> Problem:
        return self._sum(lambda cost: cost(views, mask=mask, unit=unit))

    def of_imputed(self, views: Views, mask: Tensor) -> Problem:
        return self._sum(lambda cost: cost.of_imputed(views, mask))

    def _sum(self, problem_of: Callable[[Cost], Problem]) -> Problem:
        parts = [problem_of(cost).scaled(weight) for weight, cost in self.terms]
        return parts[0] if len(parts) == 1 else sum_of(parts)

    @property
    def linear(self) -> bool:
        return all(cost.linear for _, cost in self.terms)

    @property
    def joint(self) -> bool:
        return self.linear and any(cost.joint for _, cost in self.terms)

    def slope(self, k: int) -> float | None:
        """Return the weighted sum of the slopes of the terms; None if a term has no slope."""
        slopes = [cost.slope(k) for _, cost in self.terms]
        return sum(weight * slope for (weight, _), slope in zip(self.terms, slopes) if slope) if all(slopes) else None

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return the concatenated queries of all terms, each multiplied by the share of its term in the total slope."""
        k = views.shape[-3]
        parts = [cost.query(views, view, mask=mask) for _, cost in self.terms]
        slopes = [weight * (cost.slope(k) or 0.0) for weight, cost in self.terms]
        return torch.cat([slope / sum(slopes) * part for slope, part in zip(slopes, parts)], -1)

    def candidates(self, points: Tensor) -> Tensor:
        return torch.cat([cost.candidates(points) for _, cost in self.terms], -1)

    def __repr__(self) -> str:
        return " + ".join(repr(cost) if weight == 1 else f"{weight:g} * {cost!r}" for weight, cost in self.terms)


@dataclass(frozen=True)
class RestrictedCost(Cost):
    r"""Cost of a range S of features, written `cost[start:stop]`.

    .. math:: c_S(z_1, \dots, z_k) = c\bigl(z_1[S] / \lvert z_1[S] \rvert, \dots, z_k[S] / \lvert z_k[S] \rvert\bigr)

    A point that is zero within the range stays a zero vector. Shapes and complexity are those of c for these features.

    With a sum of restricted costs, one part of an embedding can represent dependence between pairs of views, and
    another part dependence among all views.

    Args:
        cost: the cost c of the restricted points.
        start, stop: bounds of the range: whole numbers, or floats from 0.0 to 1.0 for fractions of the number of
            features. None means no bound.

    Example:
        >>> import torch, m3g
        >>> cost = m3g.CircularVariance()[:0.5] + m3g.MultilinearProduct()[0.5:]
        >>> cost
        CircularVariance(scale='definition')[:0.5] + MultilinearProduct()[0.5:]
        >>> tuple(cost(torch.rand(3, 4, 8)).tensors[0].shape)  # first half of the features of all 3 x 4 points
        (1, 12, 4)
    """

    cost: Cost
    start: int | float | None = None
    stop: int | float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.cost, Cost):
            raise ValueError(f"cost must be a cost object, got {_checks.described(self.cost)}.")
        for name in ("start", "stop"):
            value = getattr(self, name)
            bound = _checks.plain(value)
            whole = isinstance(bound, int) and _checks.is_whole(bound) and bound >= 0
            if not (bound is None or whole or (isinstance(bound, float) and 0 <= bound <= 1)):
                raise ValueError(
                    f"{name} must be a whole number of features or a fraction from 0.0 to 1.0, "
                    f"got {_checks.shown(value)}."
                )
            object.__setattr__(self, name, bound)

    def features(self, d: int) -> slice:
        """Return the range as indices of d features."""
        start, stop = (
            round(value * d) if isinstance(value, float) else value
            for value in (0 if self.start is None else self.start, d if self.stop is None else self.stop)
        )
        if not 0 <= start < stop <= d:
            raise ValueError(f"cost must have a range within the {d} features of the views, got {self!r}.")
        return slice(start, stop)

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> Problem:
        return self.cost(self._restricted_views(views), mask=mask)

    def of_imputed(self, views: Views, mask: Tensor) -> Problem:
        return self.cost.of_imputed(self._restricted_views(views), mask)

    def _restricted_views(self, views: Views) -> Views:
        if isinstance(views, Tensor):
            return _restricted(views, self.features(views.shape[-1]))
        parts, batch = flatten_batch(views)
        parts = [_restricted(part, self.features(part.shape[-1])) for part in parts]
        return [part.reshape(*batch, *part.shape[1:]) for part in parts]

    @property
    def linear(self) -> bool:
        return self.cost.linear

    @property
    def joint(self) -> bool:
        return self.cost.joint

    def slope(self, k: int) -> float | None:
        return self.cost.slope(k)

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return the query of the restricted and normalised points."""
        return self.cost.query(_restricted(views, self.features(views.shape[-1])), view, mask=mask)

    def candidates(self, points: Tensor) -> Tensor:
        return self.cost.candidates(_restricted(points, self.features(points.shape[-1])))

    def __repr__(self) -> str:
        start, stop = ("" if value is None else value for value in (self.start, self.stop))
        inner = f"({self.cost!r})" if isinstance(self.cost, SumCost) else repr(self.cost)
        return f"{inner}[{start}:{stop}]"


def _restricted(points: Tensor, features: slice) -> Tensor:
    """Select features of points (..., d) and scale the results to unit length; zero vectors stay zero."""
    return unit_or_zero(_checks.as_working(points)[..., features])


def sum_of(parts: Sequence[Problem]) -> SumProblem:
    """Return the problem of the summed costs, a `PairwiseProblem` if all parts are pairwise."""
    if all(isinstance(part, PairwiseProblem) for part in parts):
        return PairwiseSumProblem(parts)
    return SumProblem(parts)


class SumProblem(Problem):
    """Problem whose cost is the sum of the costs of several parts. `tensors` are the tensors of all parts."""

    def __init__(self, parts: Sequence[Problem]):
        self.initial_parts = tuple(parts)
        self.sizes, self.batch = parts[0].sizes, parts[0].batch
        self.tensors = tuple(tensor for part in parts for tensor in part.tensors)
        self.kernel_form = "sum" if all(part.kernel_form is not None for part in parts) else None
        self.new_slabs = len(parts) > 1

    @property
    def parts(self) -> list[Problem]:
        """The problems of the terms, with the current tensors."""
        return [part.with_tensors(tensors) for part, tensors in zip(self.initial_parts, self._by_part(self.tensors))]

    def _by_part(self, tensors: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Split tensors laid out like `self.tensors` into those of each part."""
        out, start = [], 0
        for part in self.initial_parts:
            out.append(tensors[start : start + len(part.tensors)])
            start += len(part.tensors)
        return out

    def scaled(self: AnySum, weight: float) -> AnySum:
        return type(self)([part.scaled(weight) for part in self.parts])

    def select(self: AnySum, rows: Sequence[Tensor]) -> AnySum:
        return type(self)([part.select(rows) for part in self.parts])

    def slab(self, rows: slice) -> Tensor:
        first, *others = self.parts
        total = first.slab(rows)
        for part in others:
            total = total + part.slab(rows)
        return total

    def dense(self) -> Tensor:
        """Return the full cost tensor.

        A large tensor is computed in four slabs, so that peak memory is twice its size.
        """
        n = self.sizes[0]
        if torch.compiler.is_compiling() or self.num_batch * self.num_tuples < LARGE:
            return self.slab(slice(0, n))
        step = -(-n // 4)
        return torch.cat([self.slab(slice(start, min(start + step, n))) for start in range(0, n, step)], 1)

    def matched(self) -> Tensor:
        return torch.stack([part.matched() for part in self.parts]).sum(0)

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        return tuple(grad for part in self.parts for grad in part.gradient(coupling))

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        total: dict[tuple[int, ...], Tensor] = {}
        for part, moves in zip(self.parts, self._by_part(directions)):
            for views, term in part.change(moves).items():
                total[views] = total[views] + term if views in total else term
        return total

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        by_part = zip(self.parts, self._by_part(directions))
        return tuple(grad for part, moves in by_part for grad in part.gradient_change(coupling, moves))


class PairwiseSumProblem(SumProblem, PairwiseProblem):
    """Problem whose cost is a sum of pairwise costs."""

    def __init__(self, parts: Sequence[Problem]):
        SumProblem.__init__(self, parts)
        self.kernel_form = "pairs"
        self.edges = sorted({edge for part in parts for edge in part.edges})

    def log_kernels(self, epsilon: float, dtype: torch.dtype) -> LogKernels:
        """Return the sums of exponents and shifts, in one group if every part has one group for the same edges."""
        shift: Tensor | None = None
        groups: list[Tensor] | None = None
        terms = []
        for part in self.parts:
            assert isinstance(part, PairwiseProblem)
            kernels = part.log_kernels(epsilon, dtype)
            terms.append((part, kernels))
            if kernels.shift is not None:
                shift = kernels.shift if shift is None else shift + kernels.shift
        if all(part.edges == self.edges and len(kernels.groups) == 1 for part, kernels in terms):
            groups = [torch.stack([kernels.groups[0] for _, kernels in terms]).sum(0)]
        else:
            exponents: dict[Edge, Tensor] = {}
            for part, kernels in terms:
                for edge, matrix in part.by_edge(kernels.groups).items():
                    exponents[edge] = exponents[edge] + matrix if edge in exponents else matrix
            groups = [exponents[edge] for edge in self.edges]
        return LogKernels(groups, shift)

    def slab(self, rows: slice) -> Tensor:
        return PairwiseProblem.slab(self, rows)
