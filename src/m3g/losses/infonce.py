"""InfoNCE: the contrastive loss of a pair of views."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from m3g._checks import aligned_views
from m3g.losses.base import outside_autocast
from m3g.losses.contrast import enough_points
from m3g.losses.temperature import Temperature, check_temperature


@outside_autocast
def infonce(a: Tensor, b: Tensor, *, temperature: Tensor | float = 0.1) -> Tensor:
    r"""Each point of `a` finds its own partner among the points of `b`.

    .. math::
        -\frac1n \sum_i \log \frac{e^{\langle a_i, b_i \rangle / t}}{\sum_j e^{\langle a_i, b_j \rangle / t}}

    Not symmetric in `a` and `b`. A pair loss takes the points as they are; `pairwise` and `average_of_rest`,
    which make a loss of k views of it, normalise them first.

    Args:
        a, b: (n, d), row i of both is the same object.
        temperature: t, a positive number or a tensor (see `Temperature`).

    Cost: n² d.

    >>> a = torch.eye(3)
    >>> round(float(infonce(a, a, temperature=1.0)), 4)
    0.5514

    Reference: van den Oord, Li, Vinyals, *Representation Learning with Contrastive Predictive Coding*, 2018.
    """
    check_temperature(temperature)
    a, b = pair = aligned_views([a, b], name="a, b")
    enough_points(pair)
    return cross_entropy(a @ b.T / temperature, torch.arange(len(a), device=a.device))


class InfoNCE(nn.Module):
    """The pair loss `infonce` with its temperature, fixed or learned; `(a, b) -> scalar`.

    Of many pairs (p, n, d) at once it is the mean: one product instead of p.
    """

    takes_batches = True

    def __init__(self, *, temperature: float = 0.1, learn_temperature: bool = False) -> None:
        super().__init__()
        self.temperature = Temperature(temperature, learn=learn_temperature)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if a.ndim == 2:
            return infonce(a, b, temperature=self.temperature())
        logits = a @ b.mT / self.temperature()
        truth = torch.arange(a.shape[-2], device=a.device).expand(logits.shape[:-1])
        return cross_entropy(logits.flatten(0, -2), truth.flatten())
