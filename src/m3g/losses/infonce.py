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

    The loss is not symmetric in `a` and `b`. Like every pair loss, it does not normalise its inputs. `pairwise` and
    `average_of_rest` normalise the views and extend the loss to k views.

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
    """Module form of the pair loss `infonce`, with a fixed or learned temperature.

    It also accepts a batch of p pairs, a and b (p, n, d), and then returns the mean of their losses.

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
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
    """InfoNCE over all pairs of views (`pwe`): `pairwise` of `infonce`.

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        first, symmetric: as in `pairwise`.
        normalize, gather: as in `ViewLoss`.
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
    """InfoNCE of each view against the average of the others (`ave`): `average_of_rest` of `infonce`.

    Args:
        temperature, learn_temperature: value of the temperature, and whether it is learned; see `Temperature`.
        renormalize, symmetric: as in `average_of_rest`.
        normalize, gather: as in `ViewLoss`.
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
