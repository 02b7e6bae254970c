"""The matching gap two views at a time, for many views: k² n² numbers instead of n^k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.costs import CostLike
from m3g.losses.aggregate import average_of_rest, pairwise
from m3g.losses.base import ViewLoss
from m3g.losses.m3g import M3GLoss
from m3g.solvers import Solver

DEFAULT_PAIR_TEMPERATURE = 0.2


class GapOfTwo(nn.Module):
    """The gap of two views as a pair loss, `(a, b) -> scalar`; of many pairs (p, n, d) it is the mean."""

    takes_batches = True

    def __init__(self, gap: M3GLoss) -> None:
        super().__init__()
        self.gap = gap

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.gap(torch.stack([a, b], -3)).mean()


class M3GPairs(ViewLoss):
    r"""The matching gap of two views, of all pairs and of every view with the average of the rest.

    .. math::
        \frac{1}{1 + w} \Big[ \frac{2}{k(k-1)} \sum_{l<m} \mathrm{M3G}(X_l, X_m)
        + \frac{w}{k} \sum_l \mathrm{M3G}\big(X_l, \tfrac{1}{k-1} \textstyle\sum_{m \neq l} X_m\big) \Big]

    Every step compares all views, where `M3GLoss` of many views must take some of them at a time. It is never negative,
    and zero only when the true matching is the best one of every pair. For two views it is `M3GLoss`.

    Args:
        epsilon, temperature: strength of the entropy, as in `M3GLoss`; without either the temperature is 0.2.
        final_epsilon, final_temperature: value at the end of the training, approached by equal ratios.
        rest: w, the weight of the views with the average of the others; 0 compares pairs only. The average is scaled
            to unit length if the views are.
        cost: the cost of a pair of points, "cv" or another of `m3g.matching_gap`.
        solver: "auto" or another of `m3g.matching_gap`, by name or as a mapping.
        tol: error of the marginals at which a solve stops.
        normalize: scale every vector to unit length first.
        gather: compute the loss on the points of all processes.

    With a mask two views see the points that have both, an average is of the views that there are, and every comparison
    weighs as many points as it has. With a teacher the second view, or the average, is the teacher's.

    Cost: k² n² (d + steps of the solver).

    Example:
        >>> import torch, m3g
        >>> views = torch.randn(12, 32, 16, generator=torch.Generator().manual_seed(0))
        >>> m3g.losses.M3GPairs()(views).shape
        torch.Size([])
        >>> two = views[:2].double()
        >>> bool(torch.isclose(m3g.losses.M3GPairs(0.1)(two), m3g.matching_gap(two, epsilon=0.1), rtol=1e-2))
        True
    """

    takes_teacher = True

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        temperature: float | None = None,
        final_epsilon: float | None = None,
        final_temperature: float | None = None,
        rest: float = 1.0,
        cost: CostLike = "cv",
        solver: str | Mapping[str, Any] | Solver | None = "auto",
        tol: float = 1e-3,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        super().__init__(normalize=normalize, gather=gather)
        if epsilon is None and temperature is None and final_epsilon is None:
            temperature = DEFAULT_PAIR_TEMPERATURE
        gap = M3GLoss(
            epsilon,
            temperature=temperature,
            final_epsilon=final_epsilon,
            final_temperature=final_temperature,
            cost=cost,
            solver=solver,
            tol=tol,
            normalize=False,
        )
        self.gap, self.pair_loss = gap, GapOfTwo(gap)
        self.rest = _checks.non_negative("rest", rest)

    @property
    def moves(self) -> bool:
        return self.gap.moves

    def set_progress(self, share: float) -> None:
        self.gap.set_progress(share)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        if mask is not None and bool(mask.all()):
            mask = None  # then problems of one shape are solved together
        shared: dict[str, Any] = {"mask": mask, "teacher": teacher, "least_points": 2, "normalize": self.normalize}
        value = pairwise(views, self.pair_loss, **shared)
        if self.rest > 0:
            rest = average_of_rest(views, self.pair_loss, renormalize=self.normalize, **shared)
            value = (value + self.rest * rest) / (1 + self.rest)
        return value

    def report(self, value: Tensor) -> dict[str, float]:
        """The mean gap, and how the last solve went."""
        return self.gap.report(value)

    def extra_repr(self) -> str:
        return f"rest={self.rest}"
