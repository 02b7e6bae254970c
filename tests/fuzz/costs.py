"""Costs of all k-tuples by their literal formulas, in float64 and numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fuzz.dense import Array

Edge = tuple[int, int]


def _spread(views: Sequence[Array]) -> list[Array]:
    """Return views (n_l, d) with one axis per view, and the features last."""
    k = len(views)
    return [view.reshape([-1 if a == l else 1 for a in range(k)] + [view.shape[1]]) for l, view in enumerate(views)]


def _pair(name: str, x: Array, y: Array) -> Array:
    if name == "cosine":
        lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
        return 1 - (x * y).sum(-1) / np.where(lengths > 0, lengths, 1.0)
    squared = ((x - y) ** 2).sum(-1)
    return squared if name == "sqeuclidean" else 1 / np.sqrt(np.maximum(squared, 1e-6))


def cost_tensor(name: str, views: Sequence[Array], weights: Mapping[Edge, float] | None) -> Array:
    """Cost tensor (n_1, …, n_k) of a name of `cases.COSTS`; a pairwise cost has these weights, or weight 1 each."""
    k, points = len(views), _spread(views)
    if name == "0.5*cv + 0.5*product":
        return 0.5 * cost_tensor("cv", views, None) + 0.5 * cost_tensor("product", views, None)
    if name == "product":
        return -(views[0].shape[-1] ** (k / 2 - 1)) * np.prod(np.broadcast_arrays(*points), axis=0).sum(-1)
    if name in ("cv", "cv-algorithm2", "csd"):
        squared = (sum(points) / k) ** 2
        resultant = squared.sum(-1)
        if name == "csd":
            return -np.log(np.maximum(resultant, 1e-6))
        return (1 - resultant) * (1.0 if name == "cv" else (2 * k / (k - 1)) ** 2)
    edges = dict.fromkeys(combinations(range(k), 2), 1.0) if weights is None else weights
    total = np.zeros([len(view) for view in views])
    for (l, m), weight in edges.items():
        total = total + weight * _pair(name, points[l], points[m])
    return total
