"""Points of weight zero: excluded from the solve, and padded back with zero mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.solution import Solution


@dataclass(frozen=True)
class Support:
    """Points of positive weight: their indices in each view.

    `sizes` are those of the full views, with points of weight zero.
    """

    rows: tuple[Tensor, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(weights: Sequence[Tensor] | None) -> Support | None:
        """Return the support of k weights (..., n_l); None if no weight is zero."""
        if weights is None or all(bool((weight > 0).all()) for weight in weights):
            return None
        rows = []
        for l, weight in enumerate(weights):
            positive = weight.reshape(-1, weight.shape[-1]) > 0
            if not bool((positive == positive[0]).all()):
                raise ValueError(
                    f"weights must be zero at the same points in the whole batch, got different points in view {l}."
                )
            rows.append(positive[0].nonzero().squeeze(1))
        return Support(tuple(rows), tuple(weight.shape[-1] for weight in weights))

    def restricted(self, problem: Problem, weights: Sequence[Tensor]) -> tuple[Problem, list[Tensor]]:
        """Return the problem and the weights restricted to these points."""
        return problem.select(self.rows), [weight[..., rows] for weight, rows in zip(weights, self.rows)]

    def padded(self, solution: Solution) -> PaddedSolution:
        """Return the solution of the restricted problem, extended to all points."""
        content = {field.name: getattr(solution, field.name) for field in fields(Solution) if field.init}
        return PaddedSolution(**content, support=self)

    def extend(self, tensor: Tensor, views: Sequence[int], fill: float = 0.0) -> Tensor:
        """Extend the last axes, one for each of `views`, to all points; entries of added points are `fill`."""
        for axis, l in enumerate(views, start=tensor.ndim - len(views)):
            shape = [*tensor.shape[:axis], self.sizes[l], *tensor.shape[axis + 1 :]]
            tensor = tensor.new_full(shape, fill).index_copy(axis, self.rows[l], tensor)
        return tensor


@dataclass(frozen=True, repr=False)
class PaddedSolution(Solution):
    """Solution with points of weight zero, which have no mass and potentials of minus infinity.

    `problem` and `flat_potentials` are those of the restricted problem, without these points.
    """

    support: Support | None = None

    def _support(self) -> Support:
        assert self.support is not None
        return self.support

    @property
    def potentials(self) -> list[Tensor]:
        """The potentials f_1, …, f_k: tensors (..., n_l), minus infinity at points of weight zero."""
        return [self._support().extend(part, (l,), -torch.inf) for l, part in enumerate(super().potentials)]

    def marginal(self, l: int) -> Tensor:
        """Return the marginal of view l: (..., n_l)."""
        return self._support().extend(super().marginal(l), (_checks.view_index("l", l, self.problem.k),))

    def pair_marginal(self, l: int, m: int) -> Tensor:
        """Return the pair marginal of views l and m: (..., n_l, n_m)."""
        k = self.problem.k
        pair = super().pair_marginal(l, m)
        return self._support().extend(pair, (_checks.view_index("l", l, k), _checks.view_index("m", m, k)))

    def coupling(self, *, limit: int | None = None) -> Tensor:
        """Return the full tensor (..., n_1, …, n_k)."""
        return self._support().extend(super().coupling(limit=limit), range(self.problem.k))
