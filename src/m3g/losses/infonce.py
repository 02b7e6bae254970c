"""InfoNCE: contrastive loss of a pair of views, and its two extensions to k views."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from m3g._checks import aligned_views
from m3g.losses.aggregate import AverageOfRest, Pairwise
from m3g.losses.base import outside_autocast, require_points
from m3g.losses.temperature import Temperature, check_temperature


@outside_autocast
def infonce(a: Tensor, b: Tensor, *, temperature: Tensor | float = 0.1) -> Tensor:
    r"""InfoNCE loss of two views (Eq. 1 of the paper): cross-entropy of the pair (i, i) among the pairs (i, j).

    .. math::
        -\frac1n \sum_i \log \frac{e^{\langle a_i, b_i \rangle / t}}{\sum_j e^{\langle a_i, b_j \rangle / t}}

    The loss is not symmetric in `a` and `b`, and does not normalise its inputs. `pairwise` and `average_of_rest`
    normalise the views and extend the loss to k views.

    Args:
        a, b: (n, d), unit vectors; row i of both describes object i.
        temperature: t, a positive number or a tensor (see `Temperature`).

    Returns:
        A scalar.

    Complexity: O(n² d), memory O(n²).

    Example:
        >>> a = torch.eye(3)
        >>> round(float(infonce(a, a, temperature=1.0)), 4)  # log(1 + 2 / e)
        0.5514

    Reference: van den Oord, Li, Vinyals, *Representation Learning with Contrastive Predictive Coding*, 2018
    :cite:`oord2018`.
    """
    check_temperature(temperature)
    a, b = pair = aligned_views([a, b], name="a, b")
    require_points(pair)
    return cross_entropy(a @ b.T / temperature, torch.arange(len(a), device=a.device))


class InfoNCE(nn.Module):
    r"""Module form of the pair loss `infonce`, with a fixed or learned temperature.

    .. math:: -\frac1n \sum_i \log \frac{e^{\langle a_i, b_i \rangle / t}}{\sum_j e^{\langle a_i, b_j \rangle / t}}

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.

    Shapes: a and b (n, d), or a batch of p pairs (p, n, d). The result is a scalar, the mean over the batch.

    Complexity: O(n² d) per pair, memory O(n²).

    Example:
        >>> import torch
        >>> from m3g.losses import InfoNCE
        >>> round(InfoNCE(temperature=1.0)(torch.eye(3), torch.eye(3)).item(), 4)  # log(1 + 2 / e)
        0.5514

    Reference: van den Oord, Li, Vinyals, 2018 :cite:`oord2018`.
    """

    takes_batches = True

    def __init__(self, *, temperature: float = 0.1, learn_temperature: bool = False) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learn=learn_temperature)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if a.ndim == 2:
            return infonce(a, b, temperature=self.temperature())
        logits = a @ b.mT / self.temperature()
        label = torch.arange(a.shape[-2], device=a.device).expand(logits.shape[:-1])
        return cross_entropy(logits.flatten(0, -2), label.flatten())


class InfoNCEPairwise(Pairwise):
    r"""InfoNCE loss over all pairs of views (`pwe`): `pairwise` of `infonce`.

    .. math::
        -\frac{2}{k(k-1)} \sum_{l<m} \frac1n \sum_i \log
        \frac{e^{\langle x_l[i], x_m[i] \rangle / t}}{\sum_j e^{\langle x_l[i], x_m[j] \rangle / t}}

    with :math:`x_l[i]` the point of object i in view l.

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        first, symmetric: as in `pairwise`.
        normalize, gather: as in `ViewLoss`.

    A mask and a teacher are used as in `pairwise`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n² d), memory O(k² n²).

    Example:
        >>> import torch
        >>> from m3g.losses import InfoNCEPairwise
        >>> loss = InfoNCEPairwise(temperature=0.1, learn_temperature=True)
        >>> loss(torch.randn(4, 8, 16)).shape, len(list(loss.parameters()))
        (torch.Size([]), 1)

    References: van den Oord, Li, Vinyals, 2018 :cite:`oord2018`; Piran et al., ICML 2024 :cite:`piran2024`, for the
    aggregation (Eq. 3).
    """

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        learn_temperature: bool = False,
        first: int | None = None,
        symmetric: bool = False,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        pair_loss = InfoNCE(temperature=temperature, learn_temperature=learn_temperature)
        super().__init__(pair_loss, first=first, symmetric=symmetric, min_points=2, normalize=normalize, gather=gather)


class InfoNCEAverage(AverageOfRest):
    r"""InfoNCE loss of each view against the average of the others (`ave`): `average_of_rest` of `infonce`.

    .. math::
        -\frac1k \sum_l \frac1n \sum_i \log
        \frac{e^{\langle x_l[i], \bar x_l[i] \rangle / t}}{\sum_j e^{\langle x_l[i], \bar x_l[j] \rangle / t}}

    with :math:`x_l[i]` the point of object i in view l, and :math:`\bar x_l[i]` the average of the points of object i
    in the other views, scaled to unit length if `renormalize` is set.

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        renormalize, symmetric: as in `average_of_rest`.
        normalize, gather: as in `ViewLoss`.

    A mask and a teacher are used as in `average_of_rest`.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n² d), memory O(k n²).

    Example:
        >>> import torch
        >>> from m3g.losses import InfoNCEAverage
        >>> loss = InfoNCEAverage(temperature=0.1)
        >>> loss(torch.randn(4, 8, 16)).shape
        torch.Size([])

    References: van den Oord, Li, Vinyals, 2018 :cite:`oord2018`; Piran et al., ICML 2024 :cite:`piran2024`, for the
    aggregation (Eq. 4).
    """

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        learn_temperature: bool = False,
        renormalize: bool = True,
        symmetric: bool = False,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        pair_loss = InfoNCE(temperature=temperature, learn_temperature=learn_temperature)
        super().__init__(
            pair_loss,
            renormalize=renormalize,
            symmetric=symmetric,
            min_points=2,
            normalize=normalize,
            gather=gather,
        )
