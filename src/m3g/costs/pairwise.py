"""Costs that are sums over pairs of views: c = Σ_{l<m} w_lm g(z_l, z_m)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.circular import flatten_batch
from m3g.costs.coupling import Edge, all_edges
from m3g.costs.problem import PairwiseProblem

Ground = Callable[[Tensor, Tensor], Tensor]
COULOMB_FLOOR = 1e-3


def squared_euclidean(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|²: (..., n, d), (..., m, d) -> (..., n, m)."""
    squared = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)
    return squared - 2 * x @ y.transpose(-1, -2)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """1 - cos(x_i, y_j); a zero vector has cosine 0 with everything."""
    x = torch.nn.functional.normalize(x, dim=-1)
    y = torch.nn.functional.normalize(y, dim=-1)
    return 1 - x @ y.transpose(-1, -2)


def coulomb(x: Tensor, y: Tensor) -> Tensor:
    """1 / |x_i - y_j|, the repulsion of density functional theory; distances are clamped from below at 1e-3."""
    return squared_euclidean(x, y).clamp(min=COULOMB_FLOOR**2).rsqrt()


# The cost at right angles on the sphere: what an absent point costs against everything.
GROUNDS: dict[str, tuple[Ground, float]] = {
    "sqeuclidean": (squared_euclidean, 2.0),
    "cosine": (cosine, 1.0),
    "coulomb": (coulomb, 0.5**0.5),
}


@dataclass(frozen=True)
class PairwiseCost:
    """c(z_1, …, z_k) = Σ_{l<m} w_lm g(z_l, z_m) over any graph of views.

    Args:
        ground: "sqeuclidean", "cosine", "coulomb", or a function of two tensors (..., n, d) and (..., m, d) that
            returns (..., n, m).
        weights: {(l, m): w_lm} with w_lm >= 0; pairs that are left out, or have weight 0, carry no edge, so that
            chains, stars and trees cost the solver far less. None joins every pair with weight 1.
        neutral: the cost of an absent point against any other, where views are masked; by default the cost of
            orthogonal unit vectors for the named grounds, 0 for a function.

    Example:
        A chain of three views; the solver never looks at (0, 2).

        >>> import torch, m3g
        >>> cost = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 0.5})
        >>> problem = cost(torch.eye(4).expand(3, 4, 4))
        >>> problem.edges, problem.complete
        ([(0, 1), (1, 2)], False)
    """

    ground: str | Ground = "sqeuclidean"
    weights: Mapping[Edge, float] | None = None
    neutral: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.ground):
            _checks.one_of("ground", self.ground, GROUNDS)
        for edge, weight in (self.weights or {}).items():
            if not (isinstance(edge, tuple) and len(edge) == 2 and 0 <= edge[0] < edge[1]):
                raise ValueError(f"weights must have keys (l, m) with 0 <= l < m, got {edge!r}.")
            if not (weight >= 0 and weight < float("inf")):
                raise ValueError(f"weights must be non-negative finite numbers, got {weight!r} for {edge!r}.")

    def _edges(self, k: int) -> dict[Edge, float]:
        if self.weights is None:
            return dict.fromkeys(all_edges(k), 1.0)
        for edge in self.weights:
            if edge[1] >= k:
                raise ValueError(f"weights must name views from 0 to {k - 1}, got {edge!r}.")
        kept = {edge: float(w) for edge, w in sorted(self.weights.items()) if w > 0}
        if not kept:
            raise ValueError("weights must have at least one positive weight, got none.")
        return kept

    def __call__(self, views: Views, *, mask: Tensor | None = None) -> PairwiseProblem:
        """The problem of these views; `mask` (..., k, n) tells which points are there."""
        parts, batch = flatten_batch(views)
        ground, neutral = self.ground, self.neutral
        if isinstance(ground, str):
            ground, right_angle = GROUNDS[ground]
            neutral = right_angle if neutral is None else neutral
        flat = None if mask is None else mask.reshape(-1, *mask.shape[-2:])
        costs = []
        for (l, m), weight in self._edges(len(parts)).items():
            cost = ground(parts[l], parts[m])
            expected = (parts[l].shape[0], parts[l].shape[1], parts[m].shape[1])
            if not isinstance(cost, Tensor) or tuple(cost.shape) != expected:
                got = tuple(cost.shape) if isinstance(cost, Tensor) else type(cost).__name__
                raise ValueError(f"ground must be a function that returns costs {expected} here, got {got}.")
            if flat is not None:
                both = flat[:, l].unsqueeze(-1) & flat[:, m].unsqueeze(-2)
                cost = torch.where(both, cost, neutral or 0.0)
            costs.append(weight * cost)
        sizes = [part.shape[1] for part in parts]
        stacked = torch.stack(costs, 1) if len(set(sizes)) == 1 else costs
        return PairwiseProblem(list(self._edges(len(parts))), stacked, sizes=sizes, batch=batch)
