"""What a k-tuple of points costs, and the structure a solver may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.circular import (
    CircularStd,
    CircularStdProblem,
    CircularVariance,
    CircularVarianceProblem,
    flatten_batch,
)
from m3g.costs.coupling import Coupling, all_edges, along, block_matrix
from m3g.costs.dense import DenseProblem, FunctionProblem
from m3g.costs.pairwise import PairwiseCost
from m3g.costs.problem import PairwiseProblem, Problem

NAMED: dict[str, Callable[[], Any]] = {
    "cv": CircularVariance,
    "cv-algorithm2": lambda: CircularVariance(scale="algorithm2"),
    "csd": CircularStd,
    "sqeuclidean": lambda: PairwiseCost("sqeuclidean"),
    "cosine": lambda: PairwiseCost("cosine"),
    "coulomb": lambda: PairwiseCost("coulomb"),
}


def as_cost(cost: Any) -> Callable[..., Any]:
    """A cost by name, or what was given if it can be called."""
    found: Callable[..., Any] = cost if callable(cost) else NAMED[_checks.one_of("cost", cost, NAMED)]()
    return found


def apply_cost(cost: Any, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> Problem:
    """The problem of a cost, by name, by object, or as a user's function of k tensors, on these views.

    Absent points must already be zero vectors; a cost by pairs is told about them because its ground cost may not
    treat a zero vector as neutral. `unit` says that all points are known to have length 1, which saves some work.
    """
    cost = as_cost(cost)
    if isinstance(cost, PairwiseCost):
        return cost(views, mask=mask)
    if isinstance(cost, CircularVariance):
        return cost(views, unit=unit)
    if isinstance(cost, CircularStd):
        return cost(views)
    parts, batch = flatten_batch(views)
    return FunctionProblem(cost, parts, batch=batch)


__all__ = [
    "NAMED",
    "CircularStd",
    "CircularStdProblem",
    "CircularVariance",
    "CircularVarianceProblem",
    "Coupling",
    "DenseProblem",
    "FunctionProblem",
    "PairwiseCost",
    "PairwiseProblem",
    "Problem",
    "all_edges",
    "along",
    "apply_cost",
    "as_cost",
    "block_matrix",
]
