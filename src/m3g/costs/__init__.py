"""Costs of k-tuples of points, in structured forms that solvers exploit.

A `Cost` applied to views is a `Problem`, the input of a solver. The `Solution` of a problem contains a `Coupling`.

Notation in docstrings: k views with n_l points of d features each, N = Σ n_l points in total, b problems in a batch. A
tuple t consists of the points x_l[t_l]. ⊗u is the outer product of k vectors u_l, ⊕f the outer sum of k vectors f_l,
and ∘ the entrywise product.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from m3g.costs.circular import CircularStd, CircularStdProblem, CircularVariance, CircularVarianceProblem
from m3g.costs.composed import RestrictedCost, SumCost, SumProblem
from m3g.costs.coupling import Coupling, all_edges, along, block_matrix
from m3g.costs.dense import DenseProblem, FunctionCost, FunctionProblem
from m3g.costs.expression import read_cost
from m3g.costs.pairwise import PairwiseCost
from m3g.costs.pairwise_problem import PairwiseProblem
from m3g.costs.problem import Cost, Problem
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


# A name or a weighted sum of names, a cost, or a function of k broadcastable tensors (..., d).
CostLike = str | Cost | Callable[..., Tensor]


def as_cost(cost: CostLike) -> Cost:
    """Return the cost given as an object, a name, a weighted sum of names, or a function of k points.

    Example:
        >>> as_cost("cv")
        CircularVariance(scale='definition')
        >>> as_cost("cv[:16] + 0.5*product[16:]")
        CircularVariance(scale='definition')[:16] + 0.5 * MultilinearProduct()[16:]
    """
    if isinstance(cost, Cost):
        return cost
    return FunctionCost(cost) if callable(cost) else read_cost(cost, NAMED)


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
    "RestrictedCost",
    "SumCost",
    "SumProblem",
    "all_edges",
    "along",
    "as_cost",
    "block_matrix",
]
