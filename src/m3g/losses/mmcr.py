"""MMCR: maximum manifold capacity representations."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g._checks import Views, non_negative
from m3g.losses.base import FunctionLoss, clean, outside_autocast


@outside_autocast
def mmcr(
    views: Views,
    *,
    compression: float = 5e-3,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""MMCR loss: maximise the nuclear norm of the centroids, minimise that of the views of each object.

    .. math:: -\|C\|_* + \lambda \frac1n \sum_i \|Z_i\|_*

    with :math:`C` the n × d matrix of centroids, the means over the views of each object, :math:`Z_i` the k × d matrix
    of the views of object i, and :math:`\|\cdot\|_*` the nuclear norm, the sum of singular values. The value is
    usually negative, and its magnitude grows with n.

    Args:
        views: (k, n, d) or k tensors (n, d).
        compression: λ, weight of the second term; 0 skips it.
        mask: bool (k, n). Centroids and matrices use the views that are present.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(n d min(n, d) + n k² d), for the singular values.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(mmcr(views) < mmcr(wrong))
        True

    Reference: Yerxa, Kuang, Simoncelli, Chung, *Learning Efficient Coding of Natural Images with Maximum
    Manifold Capacity Representations*, NeurIPS 2023 :cite:`yerxa2023`.
    """
    non_negative("compression", compression)
    views, mask = clean(views, mask, normalize=normalize, min_points=1)
    centroids = views.mean(0) if mask is None else views.sum(0) / mask.sum(0).unsqueeze(-1)
    centroid_term: Tensor = -torch.linalg.svdvals(centroids).sum()
    if compression == 0:
        return centroid_term
    compression_term: Tensor = torch.linalg.svdvals(views.transpose(0, 1)).sum(-1).mean()
    return centroid_term + compression * compression_term


class MMCR(FunctionLoss):
    r"""MMCR loss: module form of `mmcr`, which explains the symbols.

    .. math:: -\|C\|_* + \lambda \frac1n \sum_i \|Z_i\|_*

    Args:
        compression: λ, as in `mmcr`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(n d min(n, d) + n k² d).

    Example:
        >>> import torch
        >>> from m3g.losses import MMCR
        >>> views = torch.eye(8).expand(4, 8, 8)  # four equal views of eight orthogonal points
        >>> round(MMCR(compression=0.0)(views).item(), 4)  # minus the nuclear norm of the identity
        -8.0

    Reference: Yerxa et al., NeurIPS 2023 :cite:`yerxa2023`.
    """

    function = staticmethod(mmcr)

    def __init__(self, *, compression: float = 5e-3, normalize: bool = True, gather: bool = False) -> None:
        compression = non_negative("compression", compression)
        super().__init__(compression=compression, normalize=normalize, gather=gather)
