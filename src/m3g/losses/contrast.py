"""Helpers shared by the contrastive losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from m3g.losses.base import FunctionLoss
from m3g.losses.temperature import Temperature


def some_object(selected: Tensor, *, has: str) -> None:
    if not bool(selected.any()):
        raise ValueError(f"mask must leave at least one object with {has}, got none in this batch.")


def present_points(views: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask (k, n), all True if there is none."""
    return torch.ones(views.shape[:2], dtype=torch.bool, device=views.device) if mask is None else mask


def mean_where(values: Tensor, where: Tensor) -> Tensor:
    """Mean of the selected values; the others may be NaN and receive no gradient."""
    return torch.where(where, values, 0.0).sum() / where.sum()


def logsumexp_where(values: Tensor, where: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """Log-sum-exp of the selected values; very small but finite if none is selected."""
    return torch.where(where, values, torch.finfo(values.dtype).min / 2).logsumexp(dim)


def similarities(views: Tensor, temperature: Tensor | float) -> Tensor:
    """s[l, i, m, j] = <z_l[i], z_m[j]> / t for all pairs of the k n points."""
    k, n, d = views.shape
    points = views.reshape(k * n, d)
    return (points @ points.T / temperature).reshape(k, n, k, n)


def uniformity_minus_alignment(uniformity: Tensor, positives: Tensor, pairs: Tensor, *, masked: bool) -> Tensor:
    """Mean over objects of `uniformity` (n,) minus their alignment, the log-sum-exp of `positives` (k, k, n).

    `pairs` (bool, k, k, n) selects the pairs of views that are present. Objects without any are skipped.
    """
    objects = pairs.any(0).any(0)
    if masked:
        some_object(objects, has="two views")
    alignment = logsumexp_where(positives, pairs, (0, 1))
    return mean_where(uniformity - alignment, objects)


def two_way_cross_entropy(
    logits: Tensor, rows: Tensor | None, columns: Tensor | None, *, label_smoothing: float
) -> Tensor:
    """½ [CE over rows + CE over columns] of logits (n, n) whose true pairs are on the diagonal.

    `rows` and `columns` (bool, n) select the anchors and the candidates that are present; a true pair requires both.
    """
    if rows is None or columns is None:
        label = torch.arange(len(logits), device=logits.device)
        forward, backward = (logits, label), (logits.T, label)
    else:
        both = rows & columns
        forward = (logits[both][:, columns], (columns.cumsum(0) - 1)[both])
        backward = (logits.T[both][:, rows], (rows.cumsum(0) - 1)[both])
    return (
        cross_entropy(*forward, label_smoothing=label_smoothing)
        + cross_entropy(*backward, label_smoothing=label_smoothing)
    ) / 2


class TemperatureLoss(FunctionLoss):
    """Module form of a loss function whose only option is a temperature."""

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
