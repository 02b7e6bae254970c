"""Helpers shared by the contrastive losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from m3g.losses.base import FunctionLoss
from m3g.losses.temperature import Temperature


def require_objects(selected: Tensor, *, has: str) -> None:
    """Raise a `ValueError` if `selected` is False for all objects; `has` describes a selected object."""
    if not bool(selected.any()):
        raise ValueError(f"mask must leave at least one object with {has}, got none in this batch.")


def present_points(views: Tensor, mask: Tensor | None) -> Tensor:
    """Return which points are present, bool (k, n): the mask, or True for all points if `mask` is None."""
    return torch.ones(views.shape[:2], dtype=torch.bool, device=views.device) if mask is None else mask


def mean_where(values: Tensor, where: Tensor) -> Tensor:
    """Return the mean of the values selected by `where`; the others may be NaN and receive no gradient."""
    return torch.where(where, values, 0.0).sum() / where.sum()


def logsumexp_where(values: Tensor, where: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Return the log-sum-exp of the values selected by `where`; if none is selected, a large negative finite number."""
    return torch.where(where, values, torch.finfo(values.dtype).min / 2).logsumexp(dim)


def similarities(views: Tensor, temperature: Tensor | float) -> Tensor:
    """Return s[l, i, m, j] = ⟨x_l[i], x_m[j]⟩ / t for all pairs of points, with temperature t: (k, n, k, n)."""
    k, n, d = views.shape
    points = views.reshape(k * n, d)
    return (points @ points.T / temperature).reshape(k, n, k, n)


def mean_over_objects(terms: Tensor, pairs: Tensor, *, masked: bool) -> Tensor:
    """Return the mean of `terms` (n,) over the objects that have a pair of views, given `pairs` (bool, k, k, n).

    With `masked`, raise a `ValueError` if there is no such object.
    """
    objects = pairs.any(0).any(0)
    if masked:
        require_objects(objects, has="two views")
    return mean_where(terms, objects)


def two_way_cross_entropy(
    logits: Tensor, anchors: Tensor | None, candidates: Tensor | None, *, label_smoothing: float
) -> Tensor:
    """Return ½ [CE over rows + CE over columns] of logits (n, n) whose true pairs are on the diagonal.

    `anchors` and `candidates` (bool, n) select the rows and the columns that are present; if either is None, all are.
    Means are over the true pairs whose row and column are both present.
    """
    if anchors is None or candidates is None:
        label = torch.arange(len(logits), device=logits.device)
        row_term = cross_entropy(logits, label, label_smoothing=label_smoothing)
        column_term = cross_entropy(logits.T, label, label_smoothing=label_smoothing)
    else:
        paired = anchors & candidates
        row_logits, row_label = logits[paired][:, candidates], (candidates.cumsum(0) - 1)[paired]
        column_logits, column_label = logits.T[paired][:, anchors], (anchors.cumsum(0) - 1)[paired]
        row_term = cross_entropy(row_logits, row_label, label_smoothing=label_smoothing)
        column_term = cross_entropy(column_logits, column_label, label_smoothing=label_smoothing)
    return (row_term + column_term) / 2


class TemperatureLoss(FunctionLoss):
    """Module form of a loss function whose only option is a temperature.

    Args:
        temperature: the temperature, or its initial value if it is learned.
        learn_temperature: whether the temperature is learned, see `Temperature`.
        normalize, gather: as in `ViewLoss`.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.5,
        learn_temperature: bool = False,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=Temperature(temperature, learn=learn_temperature), normalize=normalize, gather=gather
        )
