"""Deep multiset canonical correlation analysis (MCCA) of k views, in this form equivalent to generalised CCA (GCCA)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from m3g._checks import Views, positive, positive_int
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import present_points

# Added to the variance of each feature, so that the covariance of identical points is invertible.
ADDED_VARIANCE = 1e-8


@outside_autocast
def mcca(
    views: Views,
    *,
    components: int | None = None,
    ridge: float = 0.1,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""Deep MCCA loss: one minus the mean canonical correlation of k views.

    With :math:`S_{lm}` the covariance between the features of views l and m, :math:`S_l = S_{ll} + r
    \frac{\operatorname{tr} S_{ll}}{d} I`, and :math:`\rho_1 \geq \rho_2 \geq \dots` the eigenvalues of the
    k d × k d matrix with blocks :math:`S_l^{-1/2} S_{lm} S_m^{-1/2}` (the identity for l = m),

    .. math:: 1 - \frac1c \sum_{a=1}^{c} \frac{\rho_a - 1}{k - 1}

    The fraction is the correlation along component a, averaged over pairs of views. For k = 2, it is a canonical
    correlation. Without the ridge r, the loss is zero if each view is an invertible linear function of every other.

    Args:
        views: (k, n, d) or k tensors (n, d).
        components: c, the number of components, at most d; None means d.
        ridge: r, in units of the mean variance of the view's features. With n <= d points, views correlate perfectly
            by chance, which the ridge counteracts. Larger batches allow a smaller ridge.
        mask: bool (k, n). The covariance of two views is over the objects that have both; it is 0 if there are fewer
            than two such objects. Views with fewer than two points are skipped.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(k² n d² + k³ d³), memory O(k² d²).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x = torch.randn(64, 4)
        >>> loss = mcca([x, x @ torch.randn(4, 4), x @ torch.randn(4, 4)], ridge=1e-6, normalize=False)
        >>> bool(loss < 1e-3)
        True

    References: Somandepalli, Kumar, Travadi, Narayanan, *Multimodal Representation Learning using Deep Multiset
    Canonical Correlation*, 2019 :cite:`somandepalli2019`; Benton et al., *Deep Generalized Canonical Correlation
    Analysis*, 2017 :cite:`benton2017`.
    """
    positive("ridge", ridge)
    views, mask = clean(views, mask, normalize=normalize)
    present = present_points(views, mask)
    has_two_points = present.sum(1) >= 2
    views, weight = views[has_two_points], present[has_two_points].to(views.dtype)
    k, _, d = views.shape
    num_common = weight @ weight.T
    if not bool((num_common.fill_diagonal_(0) >= 2).any()):
        raise ValueError("mask must leave at least 2 objects with the same two views, got fewer.")
    if components is not None and positive_int("components", components) > d:
        raise ValueError(f"components must be a whole number up to d = {d}, got {components}.")

    blocks = _correlation_blocks(views, weight, ridge)
    correlations = blocks.permute(0, 2, 1, 3).reshape(k * d, k * d)
    eigenvalues: Tensor = torch.linalg.eigvalsh(correlations)[-(components or d) :]
    return 1 - (eigenvalues.mean() - 1) / (k - 1)


def _correlation_blocks(views: Tensor, weight: Tensor, ridge: float) -> Tensor:
    """Return S_l^{-1/2} S_lm S_m^{-1/2} (see `mcca`), (k, k, d, d), up to a rotation of each view.

    Rotations do not change the eigenvalues, so a Cholesky factor of S_l is used in place of its square root.

    `weight` (k, n) is 1 for present points and 0 for missing ones.
    """
    k, _, d = views.shape
    identity = torch.eye(d, dtype=views.dtype, device=views.device)
    num_points = weight.sum(1)
    centred = (views - (views.sum(1) / num_points.unsqueeze(-1)).unsqueeze(1)) * weight.unsqueeze(-1)
    covariance = centred.mT @ centred / num_points[:, None, None]
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    root = torch.linalg.cholesky(covariance + (ridge * variance + ADDED_VARIANCE)[:, None, None] * identity)
    whitened = torch.linalg.solve_triangular(root, centred.mT, upper=False)  # (k, d, n)
    num_common = weight @ weight.T
    correlation = torch.einsum("lan,mbn->lmab", whitened, whitened) / num_common.clamp(min=1)[..., None, None]
    same_view = torch.eye(k, dtype=torch.bool, device=views.device)[..., None, None]
    return torch.where(same_view, identity, torch.where((num_common >= 2)[..., None, None], correlation, 0.0))


class MCCA(FunctionLoss):
    r"""Deep MCCA loss: module form of `mcca`, which explains the symbols.

    .. math:: 1 - \frac1c \sum_{a=1}^{c} \frac{\rho_a - 1}{k - 1}

    It warns once if a batch has fewer than 2 d points, because the features then correlate by chance.

    Args:
        components, ridge: as in `mcca`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n d² + k³ d³), memory O(k² d²).

    Example:
        >>> import torch
        >>> from m3g.losses import MCCA
        >>> loss = MCCA(components=2)
        >>> loss(torch.randn(3, 64, 8)).shape
        torch.Size([])

    References: Somandepalli et al., 2019 :cite:`somandepalli2019`; Benton et al., 2017 :cite:`benton2017`.
    """

    function = staticmethod(mcca)

    def __init__(
        self,
        *,
        components: int | None = None,
        ridge: float = 0.1,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            components=None if components is None else positive_int("components", components),
            ridge=positive("ridge", ridge),
            normalize=normalize,
            gather=gather,
        )
        self.warned = False

    def warn_about_small_batch(
        self, n: int, d: int, *, batch: str = "a batch size of", size: str = "an embedding size of"
    ) -> None:
        """Warn once if there are n < 2 d points.

        In the warning, `batch` and `size` introduce the recommended batch size and embedding size.
        """
        if self.warned or n >= 2 * d:
            return
        self.warned = True
        warnings.warn(
            f"mcca requires batches of at least twice as many points as dimensions, got {n} points and {d} dimensions, "
            f"which correlate by chance: use {batch} {4 * d} or {size} {max(1, n // 4)}.",
            stacklevel=2,
        )

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        self.warn_about_small_batch(*views.shape[-2:])
        return super().compute(views, mask)
