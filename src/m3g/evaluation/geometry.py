"""Geometry of the embedding: alignment of views, uniformity on the sphere, effective rank."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks


def _units(embeddings: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the unit vectors (k, n, d) in float64 and the validated mask."""
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    return normalize(embeddings.double(), dim=-1), _checks.presence(mask, embeddings)


def alignment(embeddings: Tensor, *, mask: Tensor | None = None) -> float:
    r"""Return the mean squared distance between two views of an object on the unit sphere: 0 is perfect, 2 is chance.

    The value is the mean over views :math:`l < m` and objects i of :math:`\lvert x_l[i] - x_m[i]\rvert^2` (Wang and
    Isola, 2020).

    Example:
        >>> alignment(torch.ones(3, 5, 2))
        0.0
    """
    units, mask = _units(embeddings, mask)
    total, count = 0.0, 0
    for l in range(len(units)):
        for m in range(l + 1, len(units)):
            squares = (units[l] - units[m]).square().sum(-1)
            if mask is not None:
                squares = squares[mask[l] & mask[m]]
            total, count = total + float(squares.sum()), count + len(squares)
    if count == 0:
        raise ValueError("mask must leave at least one object with two views, got none.")
    return total / count


def uniformity(embeddings: Tensor, *, mask: Tensor | None = None, limit: int = 2048) -> float:
    r"""Return how uniformly the points of a view cover the sphere, averaged over views: 0 is collapse.

    The value is :math:`\log \operatorname{mean}_{i \ne j} e^{-2 \lvert x[i] - x[j]\rvert^2}` (Wang and Isola, 2020).
    For uniformly distributed points in many dimensions, it is about -4. For a view with more than `limit` points,
    only `limit` evenly spaced rows are used.

    Example:
        >>> uniformity(torch.ones(2, 5, 3))
        0.0
    """
    units, mask = _units(embeddings, mask)
    values = []
    for l, view in enumerate(units):
        rows = view if mask is None else view[mask[l]]
        if len(rows) > limit:
            rows = rows[torch.linspace(0, len(rows) - 1, limit).long()]
        if len(rows) < 2:
            raise ValueError(f"embeddings must have at least 2 points per view, got {len(rows)} in view {l}.")
        squares = torch.pdist(rows).square()
        values.append(torch.logsumexp(-2 * squares, 0) - math.log(len(squares)))
    return float(torch.stack(values).mean())


def effective_rank(embeddings: Tensor, *, mask: Tensor | None = None) -> float:
    """Return the exponential of the entropy of the normalised singular values, averaged over views.

    The value is between 1 (collapse) and d (Roy and Vetterli, 2007).

    Example:
        >>> [round(effective_rank(view.expand(2, 3, 3)), 6) for view in (torch.ones(3, 3), torch.eye(3))]
        [1.0, 3.0]
    """
    units, mask = _units(embeddings, mask)
    ranks = []
    for l, view in enumerate(units):
        values = torch.linalg.svdvals(view if mask is None else view[mask[l]])
        normalised = values / values.sum()
        ranks.append(torch.exp(torch.special.entr(normalised).sum()))
    return float(torch.stack(ranks).mean())
