"""VICReg over k views: variance, invariance, covariance."""

from __future__ import annotations

from torch import Tensor

from m3g._checks import Views, non_negative
from m3g.losses.base import ViewLoss, clean, outside_autocast
from m3g.losses.contrast import enough_points, present_points, some_object


@outside_autocast
def vicreg(
    views: Views,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    mask: Tensor | None = None,
    normalize: bool = False,
) -> Tensor:
    r"""Views of an object agree; within a view each feature varies, and no two features vary together.

    The weighted sum of

    .. math::
        \text{invariance} &= \frac{2}{k(k-1)} \sum_{l<m} \frac{1}{nd} \|X_l - X_m\|^2 \\
        \text{variance} &= \frac1k \sum_l \frac1d \sum_c
            \max\!\Big(0, 1 - \sqrt{\operatorname{var}(X_l)_c + 10^{-4}}\Big) \\
        \text{covariance} &= \frac2k \sum_l \frac1d \sum_{c \neq c'} \operatorname{cov}(X_l)_{cc'}^2

    with variances over n - 1, so that k = 2 is the loss of the authors' code. The invariance over pairs is
    that to the mean of the views times 2k/(k-1), and is computed so.

    Args:
        views: (k, n, d) or k tensors (n, d).
        invariance, variance, covariance: weights of the three terms.
        mask: bool (k, n). Statistics of a view are over its points that are present (views with fewer than
            two have none); the invariance is the mean over the pairs of views that objects have.
        normalize: False unless asked: the variance term, with target 1, is made for vectors of any length.

    Cost: k n d², memory k n d + k d². No negatives, no temperature.

    >>> import torch
    >>> vicreg(torch.randn(4, 8, 16)).shape
    torch.Size([])

    Reference: Bardes, Ponce, LeCun, *VICReg*, ICLR 2022.
    """
    _check(invariance, variance, covariance)
    views, mask = clean(views, mask, normalize=normalize)
    enough_points(views)
    d = views.shape[-1]
    weight = present_points(views, mask).unsqueeze(-1).to(views.dtype)

    own_views = weight.sum(0)  # (n, 1)
    spread = (views - views.sum(0) / own_views).square() * weight
    pairs = (own_views * (own_views - 1) / 2).sum()
    apart = (own_views * spread.sum(0)).sum() / (pairs * d)

    points = weight.sum(1)  # (k, 1)
    enough = points.squeeze(-1) >= 2
    if mask is not None:
        some_object(pairs > 0, has="two views")
        some_object(enough, has="a view that another point has too")
    centred = (views - (views.sum(1) / points.clamp(min=1)).unsqueeze(1)) * weight
    centred, free = centred[enough], (points[enough] - 1).unsqueeze(-1)
    second = centred.mT @ centred / free  # (views, d, d)
    diagonal = second.diagonal(dim1=-2, dim2=-1)
    flat = (1 - (diagonal + 1e-4).sqrt()).relu().mean()
    together = (second.square().sum((-2, -1)) - diagonal.square().sum(-1)).mean() / d
    return invariance * apart + variance * flat + 2 * covariance * together


def _check(invariance: float, variance: float, covariance: float) -> None:
    non_negative("invariance", invariance)
    non_negative("variance", variance)
    non_negative("covariance", covariance)


class VICReg(ViewLoss):
    """`vicreg` as a module; it does not normalise unless asked."""

    def __init__(
        self,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        super().__init__(normalize=normalize, gather=gather)
        _check(invariance, variance, covariance)
        self.invariance, self.variance, self.covariance = invariance, variance, covariance

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        return vicreg(
            views,
            invariance=self.invariance,
            variance=self.variance,
            covariance=self.covariance,
            mask=mask,
            normalize=self.normalize,
        )
