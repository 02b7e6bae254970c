"""TRIANGLE: contrast of triples by the area of the triangle that they form."""

from __future__ import annotations

from torch import Tensor

from m3g._checks import Views, fraction
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import require_objects, two_way_cross_entropy
from m3g.losses.temperature import Temperature, check_temperature


@outside_autocast
def triangle(
    views: Views,
    *,
    temperature: Tensor | float = 0.07,
    label_smoothing: float = 0.1,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""TRIANGLE loss of three views: cross-entropy in both directions, with minus twice the squared area as score.

    .. math::
        u = a_i - b_j, \quad v = a_i - c_j, \quad
        A_{ij} = \tfrac12 (|u|^2 |v|^2 - \langle u, v \rangle^2), \qquad
        \tfrac12 [\operatorname{CE}(-A / t) + \operatorname{CE}(-A^\top / t)]

    where a, b and c are the three views, CE is the cross-entropy of the rows with the diagonal as labels, and A is
    twice the squared area. As in the authors' code but not in their paper, A has no square root, whose gradient would
    be unbounded at aligned triples.

    Args:
        views: (3, n, d) or three tensors (n, d); the first view is the anchor.
        temperature: t in the formula.
        label_smoothing: label smoothing of both cross-entropies.
        mask: bool (3, n). An object is an anchor if its first view is present, and a candidate if both others are.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(n² d), memory O(n²).

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(3, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(triangle(views) < triangle(wrong))
        True

    Reference: Cicchetti, Grassucci, Comminiello, *A TRIANGLE Enables Multimodal Alignment Beyond Cosine
    Similarity*, NeurIPS 2025 :cite:`cicchetti2025triangle`.
    """
    check_temperature(temperature)
    fraction("label_smoothing", label_smoothing)
    views, mask = clean(views, mask, normalize=normalize)
    if len(views) != 3:
        raise ValueError(f"views must have k = 3 for a triangle, got k = {len(views)}.")
    a, b, c = views
    ab, ac, bc = a @ b.T, a @ c.T, (b * c).sum(-1)
    aa, bb, cc = views.square().sum(-1)
    u_squared = aa[:, None] + bb - 2 * ab
    v_squared = aa[:, None] + cc - 2 * ac
    uv = aa[:, None] - ab - ac + bc
    twice_squared_area = (u_squared * v_squared - uv.square()) / 2

    anchors = candidates = None
    if mask is not None:
        anchors, candidates = mask[0], mask[1] & mask[2]
        require_objects(anchors & candidates, has="all three views")
    logits = -twice_squared_area / temperature
    return two_way_cross_entropy(logits, anchors, candidates, label_smoothing=label_smoothing)


class Triangle(FunctionLoss):
    r"""TRIANGLE loss: module form of `triangle`, which explains the symbols.

    .. math::
        \tfrac12 [\operatorname{CE}(-A / t) + \operatorname{CE}(-A^\top / t)], \qquad
        A_{ij} = \tfrac12 (|u|^2 |v|^2 - \langle u, v \rangle^2), \quad u = a_i - b_j, \quad v = a_i - c_j

    Args:
        temperature, learn_temperature: initial value of the temperature, and whether it is learned; see `Temperature`.
        label_smoothing: as in `triangle`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (3, n, d) or three tensors (n, d), `mask` (3, n), result a scalar.

    Complexity: O(n² d), memory O(n²).

    Example:
        >>> import torch
        >>> from m3g.losses import Triangle
        >>> loss = Triangle(label_smoothing=0.0)
        >>> loss(torch.randn(3, 8, 16)).shape, len(list(loss.parameters()))  # the learned temperature
        (torch.Size([]), 1)

    Reference: Cicchetti et al., NeurIPS 2025 :cite:`cicchetti2025triangle`.
    """

    function = staticmethod(triangle)

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        learn_temperature: bool = True,
        label_smoothing: float = 0.1,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=Temperature(temperature, learn=learn_temperature),
            label_smoothing=fraction("label_smoothing", label_smoothing),
            normalize=normalize,
            gather=gather,
        )
