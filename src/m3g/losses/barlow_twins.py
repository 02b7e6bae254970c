"""Barlow Twins: match the cross-correlation matrix of two views to the identity."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from m3g._checks import aligned_views, non_negative
from m3g.losses.aggregate import Pairwise
from m3g.losses.base import outside_autocast, require_points


@outside_autocast
def barlow_twins(a: Tensor, b: Tensor, *, redundancy: float = 5e-3) -> Tensor:
    r"""Barlow Twins loss of two views: invariance term plus redundancy reduction term.

    .. math::
        \sum_c (1 - C_{cc})^2 + \lambda \sum_{c \neq c'} C_{cc'}^2, \qquad
        C = \tfrac1n \tilde A^\top \tilde B

    where c and c' are features, and :math:`\tilde A` and :math:`\tilde B` are `a` and `b` with every feature centred
    and divided by :math:`\sqrt{\sigma^2 + 10^{-5}}`. Here :math:`\sigma^2` is the biased variance of the feature.

    Args:
        a, b: (n, d); row i of both describes object i.
        redundancy: λ, weight of the second term.

    Returns:
        A scalar.

    Complexity: O(n d²), memory O(d²).

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> a = torch.linalg.qr(torch.randn(64, 4))[0]
        >>> bool(barlow_twins(a, a) < barlow_twins(a, a.flip(0)))
        True

    Reference: Zbontar, Jing, Misra, LeCun, Deny, *Barlow Twins*, ICML 2021 :cite:`zbontar2021`.
    """
    non_negative("redundancy", redundancy)
    pair = aligned_views([a, b], name="a, b")
    require_points(pair)
    centred = pair - pair.mean(1, keepdim=True)
    standardised = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    correlation = standardised[0].T @ standardised[1] / pair.shape[1]
    diagonal = correlation.diagonal()
    invariance_term = (1 - diagonal).square().sum()
    redundancy_term = correlation.square().sum() - diagonal.square().sum()
    return invariance_term + redundancy * redundancy_term


class BarlowTwins(Pairwise):
    r"""Barlow Twins loss over all pairs of views: `pairwise` of `barlow_twins`.

    .. math:: \frac{2}{k(k-1)} \sum_{l<m}
        \Big[ \sum_c (1 - C^{lm}_{cc})^2 + \lambda \sum_{c \neq c'} (C^{lm}_{cc'})^2 \Big]

    where :math:`C^{lm}` is the matrix C of `barlow_twins` for views l and m.

    Args:
        redundancy: λ, as in `barlow_twins`.
        first: as in `pairwise`.
        normalize: scale every vector to unit length first; False by default, because the loss standardises features.
        gather: as in `ViewLoss`.

    A mask and a teacher are used as in `pairwise`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n d²).

    Example:
        >>> import torch
        >>> from m3g.losses import BarlowTwins
        >>> loss = BarlowTwins(redundancy=0.01)
        >>> loss(torch.randn(4, 8, 16)).shape
        torch.Size([])

    Reference: Zbontar et al., ICML 2021 :cite:`zbontar2021`.
    """

    def __init__(
        self,
        *,
        redundancy: float = 5e-3,
        first: int | None = None,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        pair_loss = partial(barlow_twins, redundancy=non_negative("redundancy", redundancy))
        super().__init__(pair_loss, first=first, min_points=2, normalize=normalize, gather=gather)
