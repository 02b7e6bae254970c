"""VICReg over k views: invariance, variance and covariance terms."""

from __future__ import annotations

from torch import Tensor

from m3g._checks import Views, non_negative
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import present_points, require_objects


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
    r"""VICReg loss of k views: the weighted sum of an invariance, a variance and a covariance term.

    .. math::
        \text{invariance} &= \frac{2}{k(k-1)} \sum_{l<m} \frac{1}{nd} \|X_l - X_m\|^2 \\
        \text{variance} &= \frac1k \sum_l \frac1d \sum_c
            \max\!\Big(0, 1 - \sqrt{\operatorname{var}(X_l)_c + 10^{-4}}\Big) \\
        \text{covariance} &= \frac2k \sum_l \frac1d \sum_{c \neq c'} \operatorname{cov}(X_l)_{cc'}^2

    where c and c' are features, and variances and covariances are unbiased. For k = 2 the loss equals that of the
    authors' code. The invariance term is computed as the mean of :math:`\frac{2k}{(k-1)d} \|x - \bar x\|^2` over all
    points x, where :math:`\bar x` is the mean of the views of the object of x.

    Args:
        views: (k, n, d) or k tensors (n, d).
        invariance, variance, covariance: weights of the three terms.
        mask: bool (k, n). Statistics of a view are over its present points; views with fewer than two are skipped. The
            invariance term is the mean over the pairs of present views of each object.
        normalize: scale every vector to unit length first; False by default, because the variance term is minimised by
            standard deviations of at least 1.

    Returns:
        A scalar.

    Complexity: O(k n d²), memory O(k n d + k d²).

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(vicreg(views) < vicreg(wrong))
        True

    Reference: Bardes, Ponce, LeCun, *VICReg*, ICLR 2022 :cite:`bardes2022`.
    """
    non_negative("invariance", invariance)
    non_negative("variance", variance)
    non_negative("covariance", covariance)
    views, mask = clean(views, mask, normalize=normalize)
    d = views.shape[-1]
    weight = present_points(views, mask).unsqueeze(-1).to(views.dtype)

    num_views = weight.sum(0)  # (n, 1)
    squared_deviations = (views - views.sum(0) / num_views).square() * weight
    num_pairs = (num_views * (num_views - 1) / 2).sum()
    invariance_term = (num_views * squared_deviations.sum(0)).sum() / (num_pairs * d)

    num_points = weight.sum(1)  # (k, 1)
    has_two_points = num_points.squeeze(-1) >= 2
    if mask is not None:
        require_objects(num_pairs > 0, has="two views")
        require_objects(has_two_points, has="a view that another object also has")
    centred = (views - (views.sum(1) / num_points.clamp(min=1)).unsqueeze(1)) * weight
    centred, degrees_of_freedom = centred[has_two_points], (num_points[has_two_points] - 1).unsqueeze(-1)
    covariances = centred.mT @ centred / degrees_of_freedom  # (views, d, d)
    variances = covariances.diagonal(dim1=-2, dim2=-1)
    variance_term = (1 - (variances + 1e-4).sqrt()).relu().mean()
    covariance_term = 2 * (covariances.square().sum((-2, -1)) - variances.square().sum(-1)).mean() / d
    return invariance * invariance_term + variance * variance_term + covariance * covariance_term


class VICReg(FunctionLoss):
    r"""VICReg loss: module form of `vicreg`.

    .. math:: w_1\, \text{invariance} + w_2\, \text{variance} + w_3\, \text{covariance}

    The arguments `invariance`, `variance` and `covariance` are the weights, and `vicreg` defines the terms.

    Args:
        invariance, variance, covariance: as in `vicreg`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n d²), memory O(k n d + k d²).

    Example:
        >>> import torch
        >>> from m3g.losses import VICReg
        >>> views = torch.randn(8, 16).expand(4, 8, 16)  # four equal views
        >>> VICReg(variance=0.0, covariance=0.0)(views).item()  # only the invariance term
        0.0

    Reference: Bardes, Ponce, LeCun, ICLR 2022 :cite:`bardes2022`.
    """

    function = staticmethod(vicreg)

    def __init__(
        self,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        super().__init__(
            invariance=non_negative("invariance", invariance),
            variance=non_negative("variance", variance),
            covariance=non_negative("covariance", covariance),
            normalize=normalize,
            gather=gather,
        )
