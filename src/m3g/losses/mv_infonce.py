"""MV-InfoNCE: one term per object, all its pairs of views together."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.losses.base import clean, outside_autocast
from m3g.losses.contrast import (
    TemperatureLoss,
    enough_points,
    logsumexp_where,
    own_pairs_against,
    present_points,
    similarities,
)
from m3g.losses.temperature import check_temperature


@outside_autocast
def mv_infonce(
    views: Views,
    *,
    temperature: Tensor | float = 0.5,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""The pairs of views of one object against all pairs its views make with anything in the batch.

    With :math:`s(il, jm) = \langle z_l[i], z_m[j] \rangle / t`,

    .. math::
        -\frac1n \sum_i \log
        \frac{\sum_l \sum_{m \neq l} e^{s(il, im)}}{\sum_l \sum_{(j, m) \neq (i, l)} e^{s(il, jm)}}

    The denominator is that of the authors' code, which, other than the formula in their text, also counts the
    same view of other objects.

    Args:
        views: (k, n, d) or k tensors (n, d).
        temperature: t; the authors use 0.5 on small data sets, 0.1 on ImageNet.
        mask: bool (k, n). The sums run over the points that are present; an object with a single view has no
            term of its own and is a negative for the others.
        normalize: scale every vector to unit length first.

    Cost: k² n² d, memory k² n².

    >>> mv_infonce(torch.randn(4, 8, 16)).shape
    torch.Size([])

    Reference: Koromilas et al., *A Principled Framework for Multi-View Contrastive Learning*, 2025.
    """
    check_temperature(temperature)
    views, mask = clean(views, mask, normalize=normalize)
    enough_points(views)
    k, n, _ = views.shape
    present = present_points(views, mask)
    scores = similarities(views, temperature)
    itself = torch.eye(k * n, dtype=torch.bool, device=views.device).reshape(k, n, k, n)
    both = present[:, :, None, None] & present
    energy = logsumexp_where(scores, both & ~itself, (0, 2, 3))
    own = scores.diagonal(dim1=1, dim2=3)  # (k, k, n)
    own_pairs = (both & ~itself).diagonal(dim1=1, dim2=3)
    return own_pairs_against(energy, own, own_pairs, masked=mask is not None)


class MVInfoNCE(TemperatureLoss):
    """`mv_infonce` as a module."""

    function = staticmethod(mv_infonce)
