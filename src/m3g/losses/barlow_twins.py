"""Barlow Twins: the features of two views correlate each with itself and with no other."""

from __future__ import annotations

from torch import Tensor, nn

from m3g._checks import aligned_views, non_negative
from m3g.losses.aggregate import Pairwise
from m3g.losses.base import outside_autocast
from m3g.losses.contrast import enough_points


@outside_autocast
def barlow_twins(a: Tensor, b: Tensor, *, redundancy: float = 5e-3) -> Tensor:
    r"""The correlations between the features of two views come close to the identity.

    .. math::
        \sum_c (1 - C_{cc})^2 + \lambda \sum_{c \neq c'} C_{cc'}^2, \qquad
        C = \tfrac1n \tilde A^\top \tilde B

    with :math:`\tilde A` the points of `a` less their mean, each feature divided by its standard deviation (over
    n, with 1e-5 added to the variance).

    Args:
        a, b: (n, d), row i of both is the same object.
        redundancy: λ, the weight of the correlations between different features.

    Cost: n d², memory d².

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> a = torch.linalg.qr(torch.randn(64, 4))[0]
    >>> bool(barlow_twins(a, a) < barlow_twins(a, a.flip(0)))
    True

    Reference: Zbontar, Jing, Misra, LeCun, Deny, *Barlow Twins*, ICML 2021.
    """
    non_negative("redundancy", redundancy)
    pair = aligned_views([a, b], name="a, b")
    enough_points(pair)
    centred = pair - pair.mean(1, keepdim=True)
    standard = centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()
    correlation = standard[0].T @ standard[1] / pair.shape[1]
    diagonal = correlation.diagonal()
    others = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + redundancy * others


class BarlowTwinsPair(nn.Module):
    """The pair loss `barlow_twins` with its weight; `(a, b) -> scalar`."""

    def __init__(self, *, redundancy: float = 5e-3) -> None:
        super().__init__()
        self.redundancy = non_negative("redundancy", redundancy)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return barlow_twins(a, b, redundancy=self.redundancy)


class BarlowTwins(Pairwise):
    """Barlow Twins of every pair of views; it does not normalise unless asked."""

    def __init__(
        self,
        *,
        redundancy: float = 5e-3,
        first: int | None = None,
        normalize: bool = False,
        gather: bool = False,
    ) -> None:
        pair_loss = BarlowTwinsPair(redundancy=redundancy)
        super().__init__(pair_loss, first=first, least_points=2, normalize=normalize, gather=gather)
