"""Multilinear inner product of k views, a cost that captures dependence among all views jointly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.costs.circular import concatenated, select_points
from m3g.costs.contraction import overwritable, parts_of
from m3g.costs.coupling import Coupling
from m3g.costs.multilinear import features, features_change, pull_from_rows, two_groups
from m3g.costs.problem import Cost, Problem


@dataclass(frozen=True)
class MultilinearProduct(Cost):
    r"""Negative multilinear inner product of a tuple of unit vectors.

    .. math:: c(z_1, \dots, z_k) = -d^{k/2 - 1} \sum_{j=1}^d \prod_{l=1}^k z_l[j]

    With this scale, the cost of random points on the sphere has a standard deviation of about :math:`d^{-1/2}` for
    every k. For k = 2, the cost is minus the cosine. For k > 2, it is linear in each view but not a sum over pairs, and
    detects dependence among all views even if they are pairwise independent.

    With a mask, a missing point is replaced by the neutral factor :math:`1 / \sqrt d` in every feature, so that the
    cost of its tuple is that of the other views. `M3GLoss` passes no mask to this cost, but replaces missing points by
    the mean of the present views.

    Shapes: views (..., k, n, d), or k tensors (..., n_l, d); costs (b, n_1, …, n_k) for a batch of b problems.

    Complexity: one matrix product of :math:`n^k d` multiply-adds for the cost tensor and two for the gradient. Memory
    is the tensor plus about :math:`n^{\lceil k/2 \rceil} d` numbers.

    Example:
        >>> import torch, m3g
        >>> signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
        >>> problem = m3g.MultilinearProduct()(signs.expand(3, 2, 2))
        >>> [round(c, 4) for c in problem.dense()[0, 1, 1].tolist()]  # the product of two equal signs is positive
        [-1.0, 0.0]

    Reference: Saporta et al., NeurIPS 2024 :cite:`saporta2024`.
    """

    @property
    def linear(self) -> bool:
        return True

    @property
    def joint(self) -> bool:
        return True

    def slope(self, k: int) -> float:
        """Return 1, because -c = ⟨z, query⟩. A query of random views has a root mean square length of 1."""
        return 1.0

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return d^(k/2 - 1) times the entrywise product of the other views.

        A missing point is replaced by 1 / √d in every feature.
        """
        neutral = float(views.shape[-1] ** -0.5)
        factors = views / neutral if mask is None else torch.where(mask.unsqueeze(-1), views / neutral, 1.0)
        product = None
        for m, factor in enumerate(factors.unbind(-3)):
            if m != view:
                product = factor if product is None else product * factor
        assert product is not None, "there are at least two views"
        return product * neutral

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> ProductProblem:
        points, sizes, batch = concatenated(views)
        if mask is not None:
            present = mask.reshape(points.shape[0], points.shape[1], 1)
            points = torch.where(present, points, points.shape[-1] ** -0.5)
        return ProductProblem(points, sizes=sizes, batch=batch)


class ProductProblem(Problem):
    """Problem of the multilinear product: C = -scale · Σ_j Π_l x_l[j], with scale = factor · d^(k/2 - 1).

    `tensors` is one tensor (b, N, d), the concatenated points of all views. The views are divided into a leading group
    A and a group B, with α and β tuples. F_A (b, α, d) and F_B (b, β, d) are the entrywise products of the points of
    these tuples. The cost tensor is then the matrix product -scale · F_A F_Bᵀ (b, α, β).
    """

    kernel_form = "product"
    new_slabs = True
    reads_coupling_once = True

    def __init__(self, points: Tensor, *, sizes: tuple[int, ...], batch: tuple[int, ...]):
        self.tensors = (points,)
        self.sizes = sizes
        self.batch = batch

    @property
    def scale(self) -> float:
        return float(self.factor * self.tensors[0].shape[-1] ** (self.k / 2 - 1))

    def select(self, rows: Sequence[Tensor]) -> ProductProblem:
        points = select_points(self.tensors[0], self.sizes, rows)
        out = self.with_tensors([points])
        out.sizes = tuple(map(len, rows))
        return out

    def slab(self, rows: slice) -> Tensor:
        points = self.tensors[0].detach()
        first, second = two_groups(points, self.sizes, rows)
        features_b = features(second) * -self.scale
        if not overwritable(points):
            return self._tensor(features(first), features_b, rows)
        slab = points.new_empty(points.shape[0], rows.stop - rows.start, *self.sizes[1:])
        for part, out in parts_of([(rows, slab)], points.shape[2] / features_b.shape[1]):
            first, _ = two_groups(points, self.sizes, part)
            torch.bmm(features(first), features_b.mT, out=out.view(out.shape[0], -1, features_b.shape[1]))
        return slab

    def _tensor(self, first: Tensor, second: Tensor, rows: slice) -> Tensor:
        """Return F_A F_Bᵀ with one axis per view."""
        return torch.bmm(first, second.mT).view(-1, rows.stop - rows.start, *self.sizes[1:])

    def matched(self) -> Tensor:
        points = self.tensors[0].unflatten(1, (self.k, -1)).unbind(1)
        product: Tensor = points[0]
        for part in points[1:]:
            product = product * part
        return product.sum(-1).mean(-1) * -self.scale

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        return (coupling.product_pull(self.tensors[0].detach()).mul_(-self.scale),)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        first, second = two_groups(self.tensors[0], self.sizes)
        first_moves, second_moves = two_groups(directions[0], self.sizes)
        # d(F_A F_Bᵀ) = dF_A F_Bᵀ + F_A dF_Bᵀ as one matrix product over 2 d features.
        left = torch.cat([features_change(first, first_moves), features(first)], -1)
        right = torch.cat([features(second), features_change(second, second_moves)], -1)
        return {tuple(range(self.k)): -self.scale * self._tensor(left, right, slice(0, self.sizes[0]))}

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        pulled = pull_from_rows(coupling.rows(), self.sizes, self.tensors[0], directions[0])
        return (pulled.mul_(-self.scale),)
