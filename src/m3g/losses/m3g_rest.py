"""Matching gaps between each view and a query computed from the others: joint dependence of k views in O(k n² d)."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Cost, CostLike, as_cost
from m3g.losses.aggregate import mean_over
from m3g.losses.base import require_points
from m3g.losses.m3g import M3GLoss
from m3g.losses.m3g_pairs import TwoViewGapMean
from m3g.solvers import SolverLike

# Log kernel of the match of an excluded object with itself. At a temperature of 0.1, the mass of its matches with other
# objects is about exp(-SELF_EXPONENT / 2); at lower temperatures, it is larger, for example 3e-7 at 0.02.
SELF_EXPONENT = 40.0


class M3GRest(TwoViewGapMean):
    r"""Mean of two-view matching gaps between each view and a query computed from the others.

    .. math:: \frac1k \sum_l \mathrm{M3G}\big(X_l, Q_l\big), \qquad
        Q_l = d^{(k-2)/2} \prod_{m \neq l} X_m \;\text{ for cost="product"}

    With `cost="product"`, the query is the entrywise product above. Like `M3GLoss(cost="product")`, the loss then
    detects dependence that exists only among all k views, but it compares n² pairs per view instead of n^k tuples. With
    `cost="cv"`, the query is the mean of the other views. The loss is non-negative, and zero only if the best matching
    of each view with its queries matches every point with the query of its object.

    Args:
        temperature: weight of the entropy between a view and its query, in units of InfoNCE; see `m3g.matching_gap`.
        final_temperature: value at the end of training, on a geometric schedule. None keeps the first value.
        cost: a cost that is linear in each view, such as "product", "cv", or a sum of the two.
        renormalize: scale every query to unit length. By default, a short query, whose views have few large features in
            common, has less influence on the matching than a long one.
        solver, tol: as in `M3GLoss`.
        normalize: scale every vector to unit length first.
        gather: compute the loss on the points of all processes; see `ViewLoss`.

    With a mask, queries use the views that are present. The gap of view l skips objects without view l and objects
    without any other view. Each gap is weighted by its number of objects. With a teacher, the queries are computed from
    the teacher's views.

    Shapes: `views` and `teacher` (k, n, d) or k tensors (n, d), `mask` (k, n), result a scalar.

    Complexity: O(k n² (d + s)) for s solver steps.

    Example:
        >>> import torch, m3g
        >>> signs = torch.randn(2, 32, 16, generator=torch.Generator().manual_seed(0)).sign()
        >>> joint = torch.stack([*signs, signs.prod(0)])  # any two of the three views are independent
        >>> loss = m3g.losses.M3GRest(temperature=0.2)
        >>> round(loss(joint).item(), 3)
        0.037
        >>> round(loss(joint[[0, 1, 0]]).item(), 3)  # no view is the product of the other two
        0.39

    References: Piran et al., ICML 2024 :cite:`piran2024`, for the gap (Eq. 14); Saporta et al., NeurIPS 2024
    :cite:`saporta2024`, for products of views.
    """

    @property
    def reads_values(self) -> bool:
        return self.gap.reads_values

    def __init__(
        self,
        temperature: float = 0.1,
        *,
        final_temperature: float | None = None,
        cost: CostLike = "product",
        renormalize: bool = False,
        solver: SolverLike = "auto",
        tol: float = 1e-3,
        normalize: bool = True,
        gather: bool = False,
    ) -> None:
        # The default cost "cv" for two views is -⟨x, y⟩ / 2 plus terms of one view, which do not change the gap.
        gap = M3GLoss(
            temperature=temperature, final_temperature=final_temperature, solver=solver, tol=tol, normalize=False
        )
        super().__init__(gap, normalize=normalize, gather=gather)
        self.cost, self.renormalize = as_cost(cost), _checks.flag("renormalize", renormalize)

    @property
    def readout(self) -> Cost | None:
        return self.cost if self.cost.joint else None

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        validated = functools.partial(
            _checks.masked_and_scaled, normalize=self.normalize, check_entries=self.reads_values
        )
        points = validated(views, mask)
        if points.ndim != 3:
            raise ValueError(f"views must be one batch of shape (k, n, d), got shape {_checks.shape_of(views)}.")
        require_points(points)
        targets = points if teacher is None else validated(teacher, mask, name="teacher")
        k = len(points)
        queries = [self.cost.query(targets, l, mask=mask) for l in range(k)]
        if self.renormalize:
            queries = [torch.nn.functional.normalize(query, dim=-1, eps=1e-3) for query in queries]
        candidates = self.cost.candidates(points)
        if mask is None or (self.reads_values and bool(mask.all())):
            value: Tensor = self.pair_loss(candidates, torch.stack(queries))
            return value
        has_rest = mask & (mask.sum(0) > 1)
        if self.reads_values:
            return mean_over(self.pair_loss, zip(candidates, queries, has_rest), 2)
        return self._mean_of_fixed_shape(candidates, torch.stack(queries), has_rest)

    def _mean_of_fixed_shape(self, candidates: Tensor, queries: Tensor, has_rest: Tensor) -> Tensor:
        """Return the mean gap over the objects in `has_rest` (bool, k, n), with tensors of fixed shape.

        The points of all other objects are replaced by zeros. Each of these objects gets an additional feature that is
        nonzero for this object only and matches it with itself. Its terms of the gap cancel, so the gap of all n
        objects is that of the m objects in `has_rest` times m / n.
        """
        k, n, _ = queries.shape
        length = math.sqrt(2 * SELF_EXPONENT * self.gap.entropy.epsilon_of(self.gap.cost, 2))
        self_features = torch.diag_embed((~has_rest).to(queries.dtype) * length)
        sides = [
            torch.cat([torch.where(has_rest.unsqueeze(-1), side, 0.0), self_features], -1)
            for side in (candidates, queries)
        ]
        counts = has_rest.sum(1)
        num_objects = torch.where(counts > 1, counts, 0).sum().clamp(min=1)
        value: Tensor = self.pair_loss(*sides)
        return value * (k * n) / num_objects

    def extra_repr(self) -> str:
        return f"cost={self.cost!r}, renormalize={self.renormalize}"
