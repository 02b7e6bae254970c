"""Mean of two-view matching gaps, for many views: O(k² n²) per solver step instead of O(n^k)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.costs import CostLike, as_cost
from m3g.losses.aggregate import average_of_rest, pairwise
from m3g.losses.base import ViewLoss
from m3g.losses.m3g import M3GLoss
from m3g.solvers import SolverLike

DEFAULT_PAIR_TEMPERATURE = 0.2


class TwoViewGap(nn.Module):
    """Matching gap as a pair loss: the gap of a and b (n, d), or the mean gap of a batch of p pairs (p, n, d)."""

    takes_batches = True

    def __init__(self, gap: M3GLoss) -> None:
        super().__init__()
        self.gap = gap

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.gap(torch.stack([a, b], -3)).mean()


class TwoViewGapMean(ViewLoss):
    """Base class of losses that are means of two-view matching gaps, which `self.pair_loss` computes."""

    takes_teacher = True

    def __init__(self, gap: M3GLoss, *, normalize: bool, gather: bool) -> None:
        super().__init__(normalize=normalize, gather=gather)
        self.gap, self.pair_loss = gap, TwoViewGap(gap)

    @property
    def scheduled(self) -> bool:
        return self.gap.scheduled

    def set_progress(self, progress: float) -> None:
        self.gap.set_progress(progress)

    def report(self, value: Tensor) -> dict[str, float]:
        """Return the mean gap, and the steps and epsilon of the last solve."""
        return self.gap.report(value)


class M3GPairs(TwoViewGapMean):
    r"""Mean of two-view matching gaps: over all pairs of views, and between each view and the average of the rest.

    .. math::
        \frac{1}{1 + w} \Big[ \frac{2}{k(k-1)} \sum_{l<m} \mathrm{M3G}(X_l, X_m)
        + \frac{w}{k} \sum_l \mathrm{M3G}\big(X_l, \tfrac{1}{k-1} \textstyle\sum_{m \neq l} X_m\big) \Big]

    The loss is non-negative, and zero only if the true matching is optimal in every term. For two views, it equals
    `M3GLoss` with the same epsilon. For many views, each step of `m3g train` compares all of them with this loss, but
    usually only random subsets of them with `M3GLoss`, whose complexity is O(n^k).

    Args:
        epsilon, temperature: weight of the entropy, as in `M3GLoss`; the default is a temperature of 0.2, or an epsilon
            of 0.05 if the cost has no slope or only `final_epsilon` is given.
        final_epsilon, final_temperature: value at the end of training, on a geometric schedule. None keeps the first
            value.
        rest: w, weight of the second sum; 0 compares pairs only. With `normalize`, the average is scaled to unit
            length.
        cost: cost of a pair of points, as in `m3g.matching_gap`.
        solver, tol: as in `M3GLoss`.
        normalize: scale every vector to unit length first.
        gather: compute the loss on the points of all processes; see `ViewLoss`.

    With a mask, each pair uses the objects that have both views, averages are over the views that are present, and each
    gap is weighted by its number of objects. With a teacher, the second argument of each gap comes from the teacher.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k² n² (d + s)) for s solver steps.

    Example:
        >>> import torch, m3g
        >>> views = torch.randn(12, 32, 16, generator=torch.Generator().manual_seed(0))
        >>> m3g.losses.M3GPairs()(views).shape
        torch.Size([])
        >>> two = views[:2].double()
        >>> bool(torch.isclose(m3g.losses.M3GPairs(0.1)(two), m3g.matching_gap(two, epsilon=0.1), rtol=1e-2))
        True

    Reference: Piran et al., ICML 2024 :cite:`piran2024`, for the gap (Eq. 14) and both aggregations (Eq. 3 and 4).
    """

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        temperature: float | None = None,
        final_epsilon: float | None = None,
        final_temperature: float | None = None,
        rest: float = 1.0,
        cost: CostLike = "cv",
        solver: SolverLike = "auto",
        tol: float = 1e-3,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        cost = as_cost(cost)
        if epsilon is None and temperature is None and final_epsilon is None and cost.slope(2) is not None:
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
        super().__init__(gap, normalize=normalize, gather=gather)
        self.rest = _checks.non_negative("rest", rest)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        if mask is not None and bool(mask.all()):
            mask = None  # without a mask, all problems have one shape and are solved as a batch
        shared: dict[str, Any] = {"mask": mask, "teacher": teacher, "min_points": 2, "normalize": self.normalize}
        pair_term = pairwise(views, self.pair_loss, **shared)
        if self.rest == 0:
            return pair_term
        rest_term = average_of_rest(views, self.pair_loss, renormalize=self.normalize, **shared)
        return (pair_term + self.rest * rest_term) / (1 + self.rest)

    def extra_repr(self) -> str:
        return f"rest={self.rest}"
