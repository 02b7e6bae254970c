"""What a k-tuple of points costs, and the structure a solver may use."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from m3g import _checks
from m3g.costs.circular import CircularStd, CircularStdProblem, CircularVariance, CircularVarianceProblem
from m3g.costs.coupling import Coupling, all_edges, along, block_matrix
from m3g.costs.dense import DenseProblem, FunctionCost, FunctionProblem
from m3g.costs.pairwise import PairwiseCost
from m3g.costs.problem import Cost, PairwiseProblem, Problem
from m3g.costs.product import MultilinearProduct, ProductProblem

NAMED: dict[str, Callable[[], Cost]] = {
    "cv": CircularVariance,
    "cv-algorithm2": lambda: CircularVariance(scale="algorithm2"),
    "csd": CircularStd,
    "product": MultilinearProduct,
    "sqeuclidean": lambda: PairwiseCost("sqeuclidean"),
    "cosine": lambda: PairwiseCost("cosine"),
    "coulomb": lambda: PairwiseCost("coulomb"),
}


# What `cost=` takes: a name, a cost, or a function of k broadcastable tensors (..., d).
CostLike = str | Cost | Callable[..., Tensor]


def as_cost(cost: CostLike) -> Cost:
    """A cost as it is, the one of that name, or that of a user's function.

    Example:
        >>> as_cost("cv")
        CircularVariance(scale='definition')
    """
    if isinstance(cost, Cost):
        return cost
    return FunctionCost(cost) if callable(cost) else NAMED[_checks.one_of("cost", cost, NAMED)]()


__all__ = [
    "NAMED",
    "CircularStd",
    "CircularStdProblem",
    "CircularVariance",
    "CircularVarianceProblem",
    "Cost",
    "CostLike",
    "Coupling",
    "DenseProblem",
    "FunctionCost",
    "FunctionProblem",
    "MultilinearProduct",
    "PairwiseCost",
    "PairwiseProblem",
    "Problem",
    "ProductProblem",
    "all_edges",
    "along",
    "as_cost",
    "block_matrix",
]
