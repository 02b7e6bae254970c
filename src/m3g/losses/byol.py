"""BYOL: regression loss of a pair of views, without negatives, and its two extensions to k views."""

from __future__ import annotations

from torch import Tensor

from m3g._checks import aligned_views
from m3g.losses.aggregate import AverageOfRest, Pairwise
from m3g.losses.base import outside_autocast


@outside_autocast
def byol(a: Tensor, b: Tensor) -> Tensor:
    r"""BYOL loss of two views (Eq. 2 of the paper): mean squared distance between paired unit vectors.

    .. math:: 2 - \frac2n \sum_i \langle a_i, b_i \rangle

    The loss is minimised by collapse: use it with a teacher and a predictor, as its authors do. It does not normalise
    its inputs.

    Args:
        a, b: (n, d), unit vectors; row i of both describes object i.

    Returns:
        A scalar.

    Complexity: O(n d).

    Example:
        >>> import torch
        >>> float(byol(torch.eye(3), torch.eye(3))), float(byol(torch.eye(3), -torch.eye(3)))
        (0.0, 4.0)

    Reference: Grill et al., *Bootstrap Your Own Latent*, NeurIPS 2020 :cite:`grill2020`.
    """
    a, b = aligned_views([a, b], name="a, b")
    return 2 - 2 * (a * b).sum(-1).mean()


class BYOLPairwise(Pairwise):
    r"""BYOL loss over all pairs of views (`pwe`): `pairwise` of `byol`. Requires a teacher.

    .. math:: \frac{1}{k(k-1)} \sum_{l \neq m} \Big( 2 - \frac2n \sum_i \langle x_l[i], t_m[i] \rangle \Big)

    with :math:`x_l[i]` the student's and :math:`t_l[i]` the teacher's point of object i in view l.

    Args:
        first: as in `pairwise`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n d).

    Example:
        >>> import torch
        >>> from m3g.losses import BYOLPairwise
        >>> student, teacher = torch.randn(2, 4, 8, 16)
        >>> BYOLPairwise()(student, teacher=teacher).shape
        torch.Size([])

    References: Grill et al., NeurIPS 2020 :cite:`grill2020`; Piran et al., ICML 2024 :cite:`piran2024`, for the
    aggregation (Eq. 3).
    """

    needs_teacher = True

    def __init__(self, *, first: int | None = None, normalize: bool = True, gather: bool = False) -> None:
        super().__init__(byol, first=first, normalize=normalize, gather=gather)


class BYOLAverage(AverageOfRest):
    r"""BYOL loss of each view against the average of the others (`ave`): `average_of_rest` of `byol`.

    .. math:: \frac1k \sum_l \Big( 2 - \frac2n \sum_i \langle x_l[i], \bar t_l[i] \rangle \Big)

    with :math:`x_l[i]` the student's point of object i in view l, and :math:`\bar t_l[i]` the average of the teacher's
    points of object i in the other views, scaled to unit length unless `renormalize` is False. Requires a teacher.

    Args:
        renormalize: as in `average_of_rest`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n d).

    Example:
        >>> import torch
        >>> from m3g.losses import BYOLAverage
        >>> student, teacher = torch.randn(2, 4, 8, 16)
        >>> BYOLAverage()(student, teacher=teacher).shape
        torch.Size([])

    References: Grill et al., NeurIPS 2020 :cite:`grill2020`; Piran et al., ICML 2024 :cite:`piran2024`, for the
    aggregation (Eq. 4).
    """

    needs_teacher = True

    def __init__(self, *, renormalize: bool = True, normalize: bool = True, gather: bool = False) -> None:
        super().__init__(byol, renormalize=renormalize, normalize=normalize, gather=gather)
