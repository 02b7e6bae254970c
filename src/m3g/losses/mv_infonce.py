"""MV-InfoNCE: one InfoNCE term per object, with all its pairs of views in the numerator."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.losses.base import clean, outside_autocast
from m3g.losses.contrast import (
    TemperatureLoss,
    logsumexp_where,
    mean_over_objects,
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
    r"""MV-InfoNCE loss: contrast the pairs of views of an object with all pairs that contain a point of this object.

    With :math:`x_l[i]` the point of object i in view l and :math:`s(il, jm) = \langle x_l[i], x_m[j] \rangle / t`,

    .. math::
        -\frac1n \sum_i \log
        \frac{\sum_l \sum_{m \neq l} e^{s(il, im)}}{\sum_l \sum_{(j, m) \neq (i, l)} e^{s(il, jm)}}

    The denominator includes pairs in the same view (l = m, j ≠ i), as in the authors' code but not in the formula of
    their paper.

    Args:
        views: (k, n, d) or k tensors (n, d).
        temperature: t; the authors use 0.5 on small data sets, 0.1 on ImageNet.
        mask: bool (k, n). Sums are over the points that are present. Objects with a single view are skipped as
            anchors but are negatives of the others.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(k² n² d), memory O(k² n²).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(mv_infonce(views) < mv_infonce(wrong))
        True

    Reference: Koromilas et al., *A Principled Framework for Multi-View Contrastive Learning*, 2025
    :cite:`koromilas2025`.
    """
    check_temperature(temperature)
    views, mask = clean(views, mask, normalize=normalize)
    k, n, _ = views.shape
    present = present_points(views, mask)
    scores = similarities(views, temperature)
    same_point = torch.eye(k * n, dtype=torch.bool, device=views.device).reshape(k, n, k, n)
    contrasted = present[:, :, None, None] & present & ~same_point
    positives = scores.diagonal(dim1=1, dim2=3)  # (k, k, n)
    pairs = contrasted.diagonal(dim1=1, dim2=3)

    log_numerator = logsumexp_where(positives, pairs, (0, 1))
    log_denominator = logsumexp_where(scores, contrasted, (0, 2, 3))
    return mean_over_objects(log_denominator - log_numerator, pairs, masked=mask is not None)


class MVInfoNCE(TemperatureLoss):
    r"""MV-InfoNCE loss: module form of `mv_infonce`, which explains the symbols.

    .. math::
        -\frac1n \sum_i \log
        \frac{\sum_l \sum_{m \neq l} e^{s(il, im)}}{\sum_l \sum_{(j, m) \neq (i, l)} e^{s(il, jm)}}

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n² d), memory O(k² n²).

    Example:
        >>> import torch
        >>> from m3g.losses import MVInfoNCE
        >>> loss = MVInfoNCE(temperature=0.1)
        >>> loss(torch.randn(4, 8, 16)).shape
        torch.Size([])

    Reference: Koromilas et al., 2025 :cite:`koromilas2025`.
    """

    function = staticmethod(mv_infonce)
