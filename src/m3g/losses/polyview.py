"""Poly-view contrastive learning with the geometric mean over pairs of views."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.losses.base import clean, outside_autocast
from m3g.losses.contrast import (
    TemperatureLoss,
    logsumexp_where,
    mean_where,
    present_points,
    require_objects,
    similarities,
)
from m3g.losses.temperature import check_temperature


@outside_autocast
def polyview(
    views: Views,
    *,
    temperature: Tensor | float = 0.1,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""Poly-view loss (geometric mean): contrast each pair of views of an object with all views of other objects.

    With :math:`x_l[i]` the point of object i in view l and :math:`s(il, jm) = \langle x_l[i], x_m[j] \rangle / t`, the
    loss is the mean over objects i and views l ≠ m of

    .. math:: -\log \frac{e^{s(il, im)}}{e^{s(il, im)} + \sum_{j \neq i} \sum_{v=1}^k e^{s(il, jv)}}

    Args:
        views: (k, n, d) or k tensors (n, d).
        temperature: t in the formula.
        mask: bool (k, n). Missing points are not anchors, positives or negatives; the mean is over the ordered pairs of
            present views of each object.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(k² n² d), memory O(k² n²).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(polyview(views) < polyview(wrong))
        True

    Reference: Shidani et al., *Poly-View Contrastive Learning*, ICLR 2024 :cite:`shidani2024`.
    """
    check_temperature(temperature)
    views, mask = clean(views, mask, normalize=normalize)
    k, n, _ = views.shape
    present = present_points(views, mask)
    scores = similarities(views, temperature)
    other_object = ~torch.eye(n, dtype=torch.bool, device=views.device)
    positives = scores.diagonal(dim1=1, dim2=3).permute(0, 2, 1)  # (k, n, k)
    log_negatives = logsumexp_where(scores, present & other_object[:, None, :], (-2, -1))  # (k, n)
    terms = torch.logaddexp(positives, log_negatives.unsqueeze(-1)) - positives
    other_view = ~torch.eye(k, dtype=torch.bool, device=views.device)
    pairs = other_view[:, None, :] & present.unsqueeze(-1) & present.T
    if mask is not None:
        require_objects(pairs, has="two views")
    return mean_where(terms, pairs)


class PolyView(TemperatureLoss):
    r"""Poly-view loss (geometric mean): module form of `polyview`, which explains the symbols.

    The loss is the mean over objects i and views l ≠ m of

    .. math:: -\log \frac{e^{s(il, im)}}{e^{s(il, im)} + \sum_{j \neq i} \sum_{v=1}^k e^{s(il, jv)}}

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n² d), memory O(k² n²).

    Example:
        >>> import torch
        >>> from m3g.losses import PolyView
        >>> loss = PolyView(temperature=0.2)
        >>> loss(torch.randn(4, 8, 16)).shape
        torch.Size([])

    Reference: Shidani et al., ICLR 2024 :cite:`shidani2024`.
    """

    function = staticmethod(polyview)

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        learn_temperature: bool = False,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=temperature, learn_temperature=learn_temperature, normalize=normalize, gather=gather
        )
