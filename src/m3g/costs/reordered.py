"""Costs of views that are given in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from m3g.costs.composed import RestrictedCost, SumCost
from m3g.costs.coupling import Edge, all_edges
from m3g.costs.dense import FunctionCost
from m3g.costs.pairwise import Ground, PairwiseCost
from m3g.costs.problem import Cost


def reordered(cost: Cost, order: Sequence[int]) -> Cost:
    """Return the cost of views in another order: its view i is view `order[i]` of `cost`.

    Of the costs in m3g, only `FunctionCost` and `PairwiseCost` may depend on the order, also as parts of a sum or of a
    restricted cost. All other costs are returned unchanged.

    Example:
        >>> reordered(PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 0.5}), [2, 0, 1]).weights
        {(1, 2): 1.0, (0, 2): 0.5}
    """
    if list(order) == sorted(order):
        return cost
    if isinstance(cost, SumCost):
        return SumCost(tuple((weight, reordered(term, order)) for weight, term in cost.terms))
    if isinstance(cost, RestrictedCost):
        return replace(cost, cost=reordered(cost.cost, order))
    places = [list(order).index(l) for l in range(len(order))]
    if isinstance(cost, FunctionCost):
        function = cost.function
        # Symmetric functions of any number of points may also be called with fewer views.
        return FunctionCost(
            lambda *points: function(*([points[i] for i in places] if len(points) == len(places) else points))
        )
    return _reordered_pairs(cost, places) if isinstance(cost, PairwiseCost) else cost


def _reordered_pairs(cost: PairwiseCost, places: Sequence[int]) -> PairwiseCost:
    """Return the cost with view l moved to `places[l]`."""
    ground, weights = cost.ground, cost.weights
    if any(m >= len(places) for part in (ground, weights) if isinstance(part, Mapping) for _, m in part):
        return cost  # unchanged, so that the error of its call contains the user's numbers of the views

    def moved(edge: Edge) -> Edge:
        first, second = sorted(places[l] for l in edge)
        return first, second

    if not isinstance(ground, str):
        by_edge = ground if isinstance(ground, Mapping) else dict.fromkeys(all_edges(len(places)), ground)
        ground = {
            moved((l, m)): part if isinstance(part, str) or places[l] < places[m] else _swapped(part)
            for (l, m), part in by_edge.items()
        }
    return replace(cost, ground=ground, weights=weights and {moved(edge): weight for edge, weight in weights.items()})


def _swapped(ground: Ground) -> Ground:
    """Return the ground cost with its arguments exchanged."""

    def swapped(x: Tensor, y: Tensor) -> Tensor:
        return ground(y, x).mT

    return swapped
