"""Variants of M3G by what is compared: pairs of views, each view with the rest, or with soft targets.

Of pairs and of the rest it is the divergence, gap / epsilon, so that steps at different epsilons weigh alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.costs import CircularVariance
from m3g.losses import M3GLoss, ViewLoss
from m3g.losses.aggregate import average_of_rest, pairwise
from m3g.losses.m3g_pairs import GapOfTwo
from m3g.solvers import as_solver


class Compared(ViewLoss):
    """The sum of divergences of some parts, each over all views of every step.

    Args:
        parts: "pairs", the mean over the pairs of views; "rest", the mean over the views of that of a view and the
            normalised mean of the others.
        epsilon: strength of the entropy.
        final_epsilon: where epsilon goes to during training, by equal ratios.

    Example:
        >>> x = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> pairs, rest = Compared(["pairs"], 0.1)(x), Compared(["rest"], 0.1)(x)
        >>> bool(abs(pairs - rest) < 1e-3)  # the rest of one view is the other
        True
    """

    def __init__(self, parts: Sequence[str], epsilon: float, final_epsilon: float | None = None) -> None:
        super().__init__()
        self.parts, self.ends = tuple(parts), (epsilon, final_epsilon or epsilon)
        self.epsilon = epsilon

    @property
    def moves(self) -> bool:
        return self.ends[0] != self.ends[1]

    def set_progress(self, share: float) -> None:
        first, last = self.ends
        self.epsilon = first * (last / first) ** share

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        return torch.stack([getattr(self, part)(views, mask) for part in self.parts]).sum(0)

    def pairs(self, views: Tensor, mask: Tensor | None) -> Tensor:
        return pairwise(views, self.gap(), mask=mask, least_points=2) / self.epsilon

    def rest(self, views: Tensor, mask: Tensor | None) -> Tensor:
        return average_of_rest(views, self.gap(), mask=mask, least_points=2) / self.epsilon

    def gap(self) -> GapOfTwo:
        return GapOfTwo(M3GLoss(self.epsilon, normalize=False))


class SoftTargets(ViewLoss):
    r"""The gap with a target that lets objects resemble each other: h(J', C) - min h(P, C) up to a constant.

    .. math:: J' = (1 - w) J + w Q,

    Q spreads an object over those that it resembles: the coupling, without a gradient, of the mean of the views with
    itself at a smaller epsilon. Only pair marginals of J' matter, and those of Q are all the same n x n matrix.

    Args:
        epsilon: strength of the entropy of P.
        weight: w, from 0 (M3G) to 1.
        sharp: epsilon of Q.

    Example:
        >>> import m3g
        >>> x = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.isclose(SoftTargets(0.1, weight=0.0)(x), m3g.matching_gap(x, epsilon=0.1)))
        True
    """

    takes_batches = True

    def __init__(self, epsilon: float, *, weight: float, sharp: float = 0.02) -> None:
        super().__init__()
        self.gap = M3GLoss(epsilon, normalize=False)
        self.weight, self.sharp = weight, sharp

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        points = _checks.masked_and_scaled(views, mask, normalize=True)
        moved = soft_target(points.detach(), self.sharp) - torch.eye(points.shape[-2]) / points.shape[-2]
        together = points.sum(-3)
        # C is a constant minus 2 / k² times the inner products of the pairs of views
        products = ((moved @ together) * together).sum((-2, -1)) - ((moved.unsqueeze(-3) @ points) * points).sum(
            (-3, -2, -1)
        )
        return self.gap(points, mask=mask) - self.weight * products / points.shape[-3] ** 2


def soft_target(points: Tensor, epsilon: float) -> Tensor:
    """The coupling (..., n, n) of the mean of the views with itself; symmetric."""
    mean = normalize(points.mean(-3), dim=-1)
    problem = CircularVariance()(torch.stack([mean, mean], -3))
    solution = as_solver("auto").solve(problem, epsilon=epsilon, tol=1e-3, weights=None)
    coupling = solution.pair_marginal(0, 1)
    return (coupling + coupling.mT) / 2
