"""PMRL: alignment of the views of an object through the singular values of their matrix."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.functional import normalize as to_unit_length

from m3g._checks import Views, non_negative
from m3g.losses.base import FunctionLoss, clean, outside_autocast
from m3g.losses.contrast import mean_where, present_points, require_objects
from m3g.losses.temperature import Temperature, check_temperature


@outside_autocast
def pmrl(
    views: Views,
    *,
    temperature: Tensor | float = 0.1,
    contrast_temperature: Tensor | float = 0.1,
    contrast: float = 1.0,
    mask: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    r"""PMRL loss: cross-entropy of the singular values of each object, plus InfoNCE of the leading singular vectors.

    With :math:`Z_i` the k × d matrix of the views of object i, :math:`s_{i1} \geq s_{i2} \geq \dots` its singular
    values and :math:`u_i` in R^d its leading right singular vector,

    .. math::
        -\frac1n \sum_i \log \frac{e^{s_{i1} / t}}{\sum_l e^{s_{il} / t}}
        - \frac\lambda n \sum_i \log \frac{e^{\langle u_i, u_i \rangle / t'}}{\sum_j e^{\langle u_i, u_j \rangle / t'}}

    The sign of :math:`u_i` is chosen so that its inner product with the object's first present view is not negative.
    The mean of the views would not determine the sign: for two views at an obtuse angle, it is orthogonal to
    :math:`u_i`. The gradient of :math:`u_i` is unbounded where the two largest singular values coincide. In the
    gradient, the difference of their squares is therefore clamped to at least 1e-3.

    Args:
        views: (k, n, d) or k tensors (n, d).
        temperature: t, temperature of the first term.
        contrast_temperature: t', temperature of the second term.
        contrast: λ, weight of the second term; 0 skips it, and the loss is then minimised by collapse.
        mask: bool (k, n). The matrix of an object contains the views that are present. Objects with a single view are
            skipped in the first term but not in the second.
        normalize: scale every vector to unit length first.

    Returns:
        A scalar.

    Complexity: O(n k² d + n² d), memory O(n k d + n²).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> views = torch.randn(8, 16) + 0.5 * torch.randn(4, 8, 16)
        >>> wrong = torch.cat([views[:1].roll(1, dims=1), views[1:]])  # view 0 is matched with wrong objects
        >>> bool(pmrl(views) < pmrl(wrong))
        True

    Reference: Liu, Xia, Ng, Chua, *Principled Multimodal Representation Learning*, 2025 :cite:`liu2025`.
    """
    check_temperature(temperature)
    check_temperature(contrast_temperature)
    non_negative("contrast", contrast)
    views, mask = clean(views, mask, normalize=normalize)
    n = views.shape[1]
    num_views = present_points(views, mask).sum(0)
    has_two_views = num_views >= 2
    if mask is not None:
        require_objects(has_two_views, has="two views")

    matrices = views.transpose(0, 1)  # (n, k, d)
    with torch.no_grad():
        left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    # ds_l = ⟨left_l, dZ right_l⟩: exact, and finite where singular values vanish or coincide.
    singular_values = torch.einsum("ikl,ikd,ild->il", left, matrices, right)
    # Missing views are rows of zeros, which contribute only the last singular values.
    counted = torch.arange(values.shape[-1], device=views.device) < num_views.unsqueeze(-1)
    logits = torch.where(counted, singular_values / temperature, torch.finfo(views.dtype).min / 2)
    alignment_term = mean_where(logits.logsumexp(-1) - logits[:, 0], has_two_views)
    if contrast == 0:
        return alignment_term
    leading = _leading_vectors(matrices, left, values)
    label = torch.arange(n, device=views.device)
    contrast_term = cross_entropy(leading @ leading.T / contrast_temperature, label)
    return alignment_term + contrast * contrast_term


def _leading_vectors(matrices: Tensor, left: Tensor, values: Tensor) -> Tensor:
    """Return the unit vectors u_i (n, d), with the gradient described in `pmrl`.

    Args:
        matrices: (n, k, d), the matrices Z_i.
        left: (n, k, r), their left singular vectors, without gradient.
        values: (n, r), their singular values, without gradient.
    """
    gram = matrices @ matrices.mT
    first, others = left[..., :1], left[..., 1:]
    squares = values.square()
    differences = (squares[:, :1] - squares[:, 1:]).clamp(min=1e-3)
    # The added term is zero up to rounding; its derivative is that of the leading eigenvector of the Gram matrix.
    perturbed = first + others @ (
        (others.mT @ (gram @ first - squares[:, :1, None] * first)) / differences.unsqueeze(-1)
    )
    leading = to_unit_length((perturbed.mT @ matrices).squeeze(1), dim=-1)
    projections = (perturbed.mT @ gram).squeeze(1).detach()
    first_view = (matrices != 0).any(-1).to(torch.uint8).argmax(-1, keepdim=True)  # missing views are zero
    return torch.where(projections.gather(1, first_view) >= 0, leading, -leading)


class PMRL(FunctionLoss):
    r"""PMRL loss: module form of `pmrl`, which explains the symbols.

    .. math::
        -\frac1n \sum_i \log \frac{e^{s_{i1} / t}}{\sum_l e^{s_{il} / t}}
        - \frac\lambda n \sum_i \log \frac{e^{\langle u_i, u_i \rangle / t'}}{\sum_j e^{\langle u_i, u_j \rangle / t'}}

    Args:
        temperature, contrast_temperature, contrast: t, t' and λ, as in `pmrl`.
        learn_temperature: whether both temperatures are learned; see `Temperature`.
        normalize, gather: as in `ViewLoss`.

    Shapes: `views` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(n k² d + n² d), memory O(n k d + n²).

    Example:
        >>> import torch
        >>> from m3g.losses import PMRL
        >>> loss = PMRL(learn_temperature=True)
        >>> loss(torch.randn(4, 8, 16)).shape, len(list(loss.parameters()))  # two learned temperatures
        (torch.Size([]), 2)

    Reference: Liu et al., 2025 :cite:`liu2025`.
    """

    function = staticmethod(pmrl)

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        contrast_temperature: float = 0.1,
        learn_temperature: bool = False,
        contrast: float = 1.0,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(
            temperature=Temperature(temperature, learn=learn_temperature),
            contrast_temperature=Temperature(contrast_temperature, learn=learn_temperature),
            contrast=non_negative("contrast", contrast),
            normalize=normalize,
            gather=gather,
        )
