"""Costs that are sums over pairs of views: c = Σ_{l<m} w_lm g(z_l, z_m)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.circular import flatten_batch
from m3g.costs.coupling import Edge, all_edges, all_equal
from m3g.costs.grounds import cosine, coulomb, squared_euclidean
from m3g.costs.pairwise_problem import PairwiseProblem
from m3g.costs.problem import Cost

Ground = Callable[[Tensor, Tensor], Tensor]

# Ground costs that are linear in the inner product of unit vectors, with their decrease per unit of the inner product.
SLOPES = {"sqeuclidean": 2.0, "cosine": 1.0}
# Named ground costs, with their values for orthogonal unit vectors, the default costs of pairs with a missing point.
GROUNDS: dict[str, tuple[Ground, float]] = {
    "sqeuclidean": (squared_euclidean, 2.0),
    "cosine": (cosine, 1.0),
    "coulomb": (coulomb, 0.5**0.5),
}


@dataclass(frozen=True)
class PairwiseCost(Cost):
    r"""Sum of ground costs over the edges of a graph of views.

    .. math:: c(z_1, \dots, z_k) = \sum_{l<m} w_{lm}\, g_{lm}(z_l, z_m)

    Shapes: views (..., k, n, d), or k tensors (..., n_l, d); costs (b, n_1, …, n_k) for a batch of b problems.

    Complexity: n² ground costs per edge. A sweep of solver="factored" then takes O(k² n²) on a large tree, such as a
    chain or a star, and O(n^k) on a complete graph.

    Args:
        ground: "sqeuclidean", the squared distance; "cosine", one minus the cosine; "coulomb", the inverse distance; or
            a function of two tensors (..., n, d) and (..., m, d) that returns (..., n, m). A mapping {(l, m): name or
            function} sets a ground cost per pair; pairs not listed have no edge.
        weights: {(l, m): w_lm} with w_lm >= 0. Pairs not listed, or with weight 0, have no edge. None gives every pair
            weight 1.
        neutral: cost of a pair with a missing point. None means that losses impute missing points if all ground costs
            are "sqeuclidean" or "cosine". Otherwise, None means the cost of orthogonal unit vectors for a named ground
            cost, and 0 for a function.

    Example:
        A chain of three views, without an edge (0, 2).

        >>> import torch, m3g
        >>> cost = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 0.5})
        >>> problem = cost(torch.eye(4).expand(3, 4, 4))
        >>> problem.edges, problem.complete
        ([(0, 1), (1, 2)], False)

        The same chain with a different ground cost on the second edge.

        >>> def taxicab(x, y):
        ...     return (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1)
        >>> m3g.PairwiseCost({(0, 1): "cosine", (1, 2): taxicab})(torch.eye(4).expand(3, 4, 4)).edges
        [(0, 1), (1, 2)]

    Reference: Haasler et al., 2021 :cite:`haasler2021`, for graphs of views.
    """

    ground: str | Ground | Mapping[Edge, str | Ground] = "sqeuclidean"
    weights: Mapping[Edge, float] | None = None
    neutral: float | None = None

    def __post_init__(self) -> None:
        grounds = self.ground if isinstance(self.ground, Mapping) else {None: self.ground}
        for edge, ground in grounds.items():
            if edge is not None:
                _check_edge("ground", edge)
            if not callable(ground):
                _checks.one_of("ground" if edge is None else f"ground of {edge!r}", ground, GROUNDS)
        if not isinstance(self.weights, (Mapping, type(None))):
            raise ValueError(f"weights must be a mapping of pairs to numbers, got {_checks.described(self.weights)}.")
        if self.neutral is not None:
            object.__setattr__(self, "neutral", _checks.finite("neutral", self.neutral))
        for edge, weight in (self.weights or {}).items():
            _check_edge("weights", edge)
            _checks.non_negative(f"weights[{edge!r}]", weight)
            if isinstance(self.ground, Mapping) and edge not in self.ground:
                raise ValueError(f"weights must have no keys other than those of ground, got {edge!r}.")

    def edges(self, k: int) -> dict[Edge, tuple[str | Ground, float]]:
        """Return the ground cost and the weight of every edge of k views."""
        grounds = self.ground if isinstance(self.ground, Mapping) else dict.fromkeys(all_edges(k), self.ground)
        weights = dict.fromkeys(grounds, 1.0) if self.weights is None else self.weights
        for name, given in (("ground", grounds), ("weights", weights)):
            for edge in given:
                if edge[1] >= k:
                    raise ValueError(f"{name} must name views from 0 to {k - 1}, got {edge!r}.")
        edges = {edge: (grounds[edge], float(weight)) for edge, weight in sorted(weights.items()) if weight > 0}
        if not edges:
            name = "ground" if self.weights is None else "weights"
            raise ValueError(f"{name} must have at least one pair with positive weight, got none.")
        return edges

    @property
    def linear(self) -> bool:
        grounds = self.ground.values() if isinstance(self.ground, Mapping) else [self.ground]
        return all(isinstance(ground, str) and ground in SLOPES for ground in grounds)

    def of_imputed(self, views: Views, mask: Tensor) -> PairwiseProblem:
        return self(views, mask=mask)

    def slope(self, k: int) -> float | None:
        """Return the mean over views l of Σ_m w_lm s_lm with the `SLOPES` s; None if a ground cost has no slope."""
        edges = self.edges(k).values()
        if not all(isinstance(ground, str) and ground in SLOPES for ground, _ in edges):
            return None
        return 2 / k * sum(weight * SLOPES[ground] for ground, weight in edges if isinstance(ground, str))

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the other views, without missing points.

        The weight of a view is the weight of its edge with `view` times the slope of the ground cost of this edge,
        divided by `slope`.
        """
        slope = self.slope(views.shape[-3])
        if slope is None:
            return super().query(views, view, mask=mask)
        total = torch.zeros_like(views[..., 0, :, :])
        for (l, m), (ground, weight) in self.edges(views.shape[-3]).items():
            if view in (l, m):
                other = m if view == l else l
                part = views[..., other, :, :]
                part = part if mask is None else torch.where(mask[..., other, :].unsqueeze(-1), part, 0.0)
                total = total + weight * SLOPES[str(ground)] / slope * part
        return total

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> PairwiseProblem:
        parts, batch = flatten_batch(views)
        masks = None
        if mask is not None and (self.neutral is not None or self.slope(len(parts)) is None):
            masks = mask.reshape(-1, *mask.shape[-2:]).unbind(1)
            # Missing points are set to ones, because a ground cost may have no derivative at zero. Their costs are
            # replaced below.
            parts = [torch.where(present.unsqueeze(-1), part, 1.0) for present, part in zip(masks, parts)]
        costs = []
        edges = self.edges(len(parts))
        for (l, m), (ground, weight) in edges.items():
            function, orthogonal_cost = GROUNDS[ground] if isinstance(ground, str) else (ground, 0.0)
            cost = _ground_costs(function, parts[l], parts[m], (l, m))
            if masks is not None:
                both = masks[l].unsqueeze(-1) & masks[m].unsqueeze(-2)
                cost = torch.where(both, cost, orthogonal_cost if self.neutral is None else self.neutral)
            costs.append(weight * cost)
        costs = _checks.common_dtype([_checks.as_working(cost) for cost in costs])
        sizes = [part.shape[1] for part in parts]
        stacked = torch.stack(costs, 1) if all_equal(sizes) else costs
        return PairwiseProblem(list(edges), stacked, sizes=sizes, batch=batch)


def _check_edge(name: str, edge: object) -> None:
    """Reject keys of the argument `name` that are not pairs of views (l, m) with l < m."""
    whole = isinstance(edge, tuple) and len(edge) == 2 and all(_checks.is_whole(_checks.plain(l)) for l in edge)
    if not (whole and 0 <= edge[0] < edge[1]):  # type: ignore[index]
        raise ValueError(f"{name} must have keys (l, m) with 0 <= l < m, got {_checks.shown(edge)}.")


def _ground_costs(ground: Ground, x: Tensor, y: Tensor, edge: Edge) -> Tensor:
    """Return ground(x, y); if it fails or has another shape, raise an error with the views and the expected shape."""
    expected = (x.shape[0], x.shape[1], y.shape[1])
    required = (
        f"ground must be a function that returns costs {expected} for points {tuple(x.shape)} of view {edge[0]} "
        f"and {tuple(y.shape)} of view {edge[1]}"
    )
    try:
        cost = ground(x, y)
    except Exception as error:
        raise ValueError(f"{required}, got {type(error).__name__}: {error}") from error
    if not isinstance(cost, Tensor) or tuple(cost.shape) != expected:
        got = f"costs {tuple(cost.shape)}" if isinstance(cost, Tensor) else type(cost).__name__
        raise ValueError(f"{required}, got {got}.")
    return cost
