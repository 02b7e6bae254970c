"""BYOL: the regression loss of a pair of views, which has no negatives."""

from __future__ import annotations

from torch import Tensor

from m3g._checks import aligned_views
from m3g.losses.base import outside_autocast


@outside_autocast
def byol(a: Tensor, b: Tensor) -> Tensor:
    r"""Each point of `a` meets its own partner in `b`: the mean squared distance of unit vectors.

    .. math:: 2 - \frac2n \sum_i \langle a_i, b_i \rangle

    Nothing keeps the points apart, so by itself this loss has the trivial minimum "all points equal": use it
    with a teacher and a predictor, as its authors do. Takes the points as they are, like every pair loss.

    Args:
        a, b: (n, d), row i of both is the same object.

    Cost: n d.

    >>> import torch
    >>> float(byol(torch.eye(3), torch.eye(3)))
    0.0

    Reference: Grill et al., *Bootstrap Your Own Latent*, NeurIPS 2020.
    """
    a, b = aligned_views([a, b], name="a, b")
    return 2 - 2 * (a * b).sum(-1).mean()
