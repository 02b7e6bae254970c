"""GRAM: contrast tuples by the volume of the parallelotope that their vectors span."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g._checks import Views, fraction, positive, shape_of, view_index
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import require_objects, two_way_cross_entropy
from m3g.losses.temperature import Temperature, check_temperature


@outside_autocast
def gram(
    views: Views,
    *,
    temperature: Tensor | float = 0.07,
    anchor: int = 0,
    label_smoothing: float = 0.1,
    floor: float = 1e-6,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""GRAM loss: cross-entropy in both directions, with the negative volume of a tuple as score.

    .. math::
        V_{ij} = \sqrt{\det \operatorname{Gram}(a_i, \text{others}_j)}, \qquad
        \tfrac12 [\operatorname{CE}(-V / t) + \operatorname{CE}(-V^\top / t)]

    where :math:`a_i` is the point of object i in the anchor view, :math:`\text{others}_j` are the points of object j in
    all other views, Gram is the matrix of inner products of these k vectors, and CE is the cross-entropy of the rows
    with the diagonal as labels.

    Args:
        views: (k, n, d) or k tensors (n, d), with k <= d, because more than d vectors span no volume.
        temperature: t in the formula.
        anchor: index of the anchor view.
        label_smoothing: label smoothing of both cross-entropies.
        floor: lower bound of the determinants. The gradient of the square root is unbounded at aligned tuples, whose
            determinant is 0, and float32 does not resolve determinants below the default. Clamped determinants have
            no gradient.
        mask: bool (k, n). The volume is that of the vectors that are present. An object is an anchor if its anchor view
            is present, and a candidate if at least one other view is present.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(n² k³ + k n² d), memory O(n² k²).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(gram(views) < gram(wrong))
        True

    Reference: Cicchetti, Grassucci, Sigillo, Comminiello, *Gramian Multimodal Representation Learning and
    Alignment*, ICLR 2025 :cite:`cicchetti2025gram`.
    """
    check_temperature(temperature)
    fraction("label_smoothing", label_smoothing)
    positive("floor", floor)
    views, mask = clean(views, mask, normalize=normalize)
    k, n, d = views.shape
    if k > d:
        raise ValueError(f"views must have k <= d for a volume, got shape {shape_of(views)}.")
    order = [view_index("anchor", anchor, k)]
    order += [l for l in range(k) if l != order[0]]
    views, mask = views[order], None if mask is None else mask[order]
    a, others = views[0], views[1:]

    # Gram(a_i, others_j), (n, n, k, k), has the blocks |a_i|², ⟨a_i, others_j⟩ and Gram(others_j).
    anchor_square = a.square().sum(-1)[:, None, None, None].expand(n, n, 1, 1)
    anchor_products = torch.einsum("id,mjd->ijm", a, others)
    others_gram = torch.einsum("ljd,mjd->jlm", others, others)
    if mask is not None:
        # The row of a missing vector is zero; a one on the diagonal removes it from the determinant.
        others_gram = others_gram + torch.diag_embed((~mask[1:]).T.to(others_gram.dtype))
    top = torch.cat([anchor_square, anchor_products.unsqueeze(-2)], -1)
    bottom = torch.cat([anchor_products.unsqueeze(-1), others_gram.expand(n, n, k - 1, k - 1)], -1)
    volume = torch.linalg.det(torch.cat([top, bottom], -2)).abs().clamp(min=floor).sqrt()

    anchors = candidates = None
    if mask is not None:
        anchors, candidates = mask[0], mask[1:].any(0)
        require_objects(anchors & candidates, has="the anchor view and another")
    return two_way_cross_entropy(-volume / temperature, anchors, candidates, label_smoothing=label_smoothing)


class Gram(FunctionLoss):
    r"""GRAM loss: module form of `gram`, which explains the symbols.

    .. math::
        \tfrac12 [\operatorname{CE}(-V / t) + \operatorname{CE}(-V^\top / t)], \qquad
        V_{ij} = \sqrt{\det \operatorname{Gram}(a_i, \text{others}_j)}

    Args:
        temperature, learn_temperature: initial value of the temperature, and whether it is learned; see `Temperature`.
        anchor, label_smoothing, floor: as in `gram`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(n² k³ + k n² d), memory O(n² k²).

    Example:
        >>> import torch
        >>> from m3g.losses import Gram
        >>> loss = Gram(anchor=1)  # the other views are compared with view 1
        >>> loss(torch.randn(4, 8, 16)).shape, len(list(loss.parameters()))  # the learned temperature
        (torch.Size([]), 1)

    Reference: Cicchetti et al., ICLR 2025 :cite:`cicchetti2025gram`.
    """

    function = staticmethod(gram)

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        learn_temperature: bool = True,
        anchor: int = 0,
        label_smoothing: float = 0.1,
        floor: float = 1e-6,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=Temperature(temperature, learn=learn_temperature),
            anchor=anchor,
            label_smoothing=fraction("label_smoothing", label_smoothing),
            floor=positive("floor", floor),
            normalize=normalize,
            gather=gather,
        )
