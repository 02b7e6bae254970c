"""Small pieces that the contrastive losses share."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from m3g._checks import shape_of
from m3g.losses.base import ViewLoss
from m3g.losses.temperature import Temperature


def enough_points(views: Tensor, *, least: int = 2) -> None:
    if views.shape[-2] < least:
        raise ValueError(
            f"views must have at least {least} points per view for this loss, got shape {shape_of(views)}."
        )


def some_object(wanted: Tensor, *, has: str) -> None:
    if not bool(wanted.any()):
        raise ValueError(f"mask must leave at least one point with {has}, got none in this batch.")


def present_points(views: Tensor, mask: Tensor | None) -> Tensor:
    """The mask (k, n) of checked views: all of them where there is none."""
    return torch.ones(views.shape[:2], dtype=torch.bool, device=views.device) if mask is None else mask


def mean_where(values: Tensor, where: Tensor) -> Tensor:
    """The mean of the wanted values; the others get no gradient, whatever they are."""
    return torch.where(where, values, 0.0).sum() / where.sum()


def logsumexp_where(values: Tensor, where: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """log sum exp of the wanted values: very small but finite where there are none."""
    return torch.where(where, values, torch.finfo(values.dtype).min / 2).logsumexp(dim)


def similarities(views: Tensor, temperature: Tensor | float) -> Tensor:
    """s[l, i, m, j] = <z_l[i], z_m[j]> / t for all pairs of the k n points."""
    k, n, d = views.shape
    flat = views.reshape(k * n, d)
    return (flat @ flat.T / temperature).reshape(k, n, k, n)


def own_pairs_against(energy: Tensor, own: Tensor, pairs: Tensor, *, masked: bool) -> Tensor:
    """The mean over objects of `energy` (n,) minus the log sum exp of the scores `own` (k, k, n) of their own views.

    `pairs` (bool, k, k, n) says which pairs of views an object has; one without any has no term.
    """
    objects = pairs.any(0).any(0)
    if masked:
        some_object(objects, has="two views")
    return mean_where(energy - logsumexp_where(own, pairs, (0, 1)), objects)


def two_way_cross_entropy(
    logits: Tensor, rows: Tensor | None, columns: Tensor | None, *, label_smoothing: float
) -> Tensor:
    """½ [CE of the rows + CE of the columns] of logits (n, n) whose true pairs are on the diagonal.

    `rows` and `columns` (bool, n) say which anchors and which candidates there are; a true pair needs both.
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


class TemperatureLoss(ViewLoss):
    """A loss with a temperature and no other options: `function(views, temperature=, mask=, normalize=)`."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        *,
        temperature: float = 0.5,
        learn_temperature: bool = False,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(normalize=normalize, gather=gather)
        self.temperature = Temperature(temperature, learn=learn_temperature)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        return type(self).function(views, temperature=self.temperature(), mask=mask, normalize=self.normalize)
