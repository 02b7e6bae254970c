"""The multilinear inner product of k views: a cost that depends on all views at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g._checks import Views
from m3g.costs.circular import concatenated, select_points
from m3g.costs.contraction import balanced_split
from m3g.costs.coupling import Coupling
from m3g.costs.problem import Cost, Problem


@dataclass(frozen=True)
class MultilinearProduct(Cost):
    r"""Negative multilinear inner product of a tuple.

    .. math:: c(z_1, \dots, z_k) = -d^{k/2 - 1} \sum_{j=1}^d \prod_{l=1}^k z_l[j]

    In units of :math:`1 / \sqrt d` per entry it is minus the mean over features of the product over views. Random
    points of the sphere therefore have costs of standard deviation about :math:`d^{-1/2}` for every k, and k = 2 is
    minus the cosine. The cost is linear in each view and not a sum over pairs: it detects dependence among all views
    where any two of them are independent.

    A missing view has the neutral factor :math:`1 / \sqrt d` in every feature, so that a tuple is scored by the product
    of the views that are present, scaled for their number.

    The cost tensor and the gradient are one and two matrix products of :math:`n^k d` multiply-adds. Beside the tensor,
    features of half of the views are held, about :math:`n^{\lceil k/2 \rceil} d` numbers.

    Example:
        >>> import torch, m3g
        >>> signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
        >>> problem = m3g.MultilinearProduct()(signs.expand(3, 2, 2))
        >>> [round(c, 4) for c in problem.dense()[0, 1, 1].tolist()]  # the product of two equal signs is positive
        [-1.0, 0.0]
    """

    @property
    def linear(self) -> bool:
        return True

    @property
    def joint(self) -> bool:
        return True

    def slope(self, k: int) -> float:
        """1: the query of independent random views has length 1 in the root mean square, for every d and k."""
        return 1.0

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """The product of the other views, each in units of 1 / sqrt(d); a missing one is the factor 1."""
        unit = float(views.shape[-1] ** -0.5)
        factors = views / unit if mask is None else torch.where(mask.unsqueeze(-1), views / unit, 1.0)
        product = None
        for m, factor in enumerate(factors.unbind(-3)):
            if m != view:
                product = factor if product is None else product * factor
        assert product is not None, "there are two views"
        return product * unit

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> ProductProblem:
        points, sizes, batch = concatenated(views)
        if mask is not None:
            present = mask.reshape(points.shape[0], points.shape[1], 1)
            points = torch.where(present, points, points.shape[-1] ** -0.5)
        return ProductProblem(points, sizes=sizes, batch=batch)


class ProductProblem(Problem):
    """-d^(k/2 - 1) Σ_j Π_l x_l[j]. `tensors` is one tensor (b, N, d) with the points of all views, one after the other.

    The views are divided into a leading group A and the rest B. With the products F_A (b, α, d) and F_B (b, β, d) of
    the features of each tuple of a group, the cost tensor is -s F_A F_Bᵀ (b, α, β).
    """

    def __init__(self, points: Tensor, *, sizes: tuple[int, ...], batch: tuple[int, ...]):
        self.tensors = (points,)
        self.sizes = sizes
        self.batch = batch

    @property
    def scale(self) -> float:
        return float(self.factor * self.tensors[0].shape[-1] ** (self.k / 2 - 1))

    @property
    def lead(self) -> int:
        """The number of views in group A, for which the groups have the fewest tuples."""
        return balanced_split(self.sizes)

    def select(self, rows: Sequence[Tensor]) -> ProductProblem:
        points = select_points(self.tensors[0], self.sizes, rows)
        out = self.with_tensors([points])
        out.sizes = tuple(map(len, rows))
        return out

    def _groups(self, points: Tensor, rows: slice | None = None) -> tuple[list[Tensor], list[Tensor]]:
        """The points of the views of A, of which view 0 may be restricted to some rows, and those of B."""
        parts = list(points.split(list(self.sizes), 1))
        if rows is not None:
            parts[0] = parts[0][:, rows]
        return parts[: self.lead], parts[self.lead :]

    def slab(self, rows: slice) -> Tensor:
        first, second = self._groups(self.tensors[0].detach(), rows)
        return self._tensor(features(first).mul_(-self.scale), features(second), rows)

    def _tensor(self, first: Tensor, second: Tensor, rows: slice) -> Tensor:
        """F_A F_Bᵀ with an axis per view."""
        return torch.bmm(first, second.mT).view(-1, rows.stop - rows.start, *self.sizes[1:])

    def matched(self) -> Tensor:
        points = self.tensors[0].unflatten(1, (self.k, -1)).unbind(1)
        product: Tensor = points[0]
        for part in points[1:]:
            product = product * part
        return product.sum(-1).mean(-1) * -self.scale

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        points = self.tensors[0].detach()
        return (self._pulled(coupling, points, None),)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        first, second = self._groups(self.tensors[0])
        first_moves, second_moves = self._groups(directions[0])
        # d(F_A F_Bᵀ) = dF_A F_Bᵀ + F_A dF_Bᵀ as one matrix product over 2 d features.
        left = torch.cat([features_change(first, first_moves), features(first)], -1)
        right = torch.cat([features(second), features_change(second, second_moves)], -1)
        return {tuple(range(self.k)): -self.scale * self._tensor(left, right, slice(0, self.sizes[0]))}

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (self._pulled(coupling, self.tensors[0], directions[0]),)

    def _pulled(self, coupling: Coupling, points: Tensor, moves: Tensor | None) -> Tensor:
        """d⟨P, C⟩ / d points (b, N, d), or the change of that when the points move."""
        _, second = self._groups(points)
        features_b = features(second)
        _, second_moves = self._groups(points if moves is None else moves)
        change_b = None if moves is None else features_change(second, second_moves)
        pulled_b, pulled_change_b = torch.zeros_like(features_b), torch.zeros_like(features_b)
        leading: list[Tensor] = []
        rest: list[Tensor] | None = None
        for rows, slab in coupling.rows():
            first, _ = self._groups(points, rows)
            features_a = features(first)
            matrix = slab.reshape(slab.shape[0], features_a.shape[1], -1).to(points.dtype)
            pulled_a = torch.bmm(matrix, features_b)
            pulled_b = torch.baddbmm(pulled_b, matrix.mT, features_a)
            if moves is None or change_b is None:
                found = pull(first, pulled_a)
            else:
                first_moves, _ = self._groups(moves, rows)
                found = pull_change(first, first_moves, pulled_a, torch.bmm(matrix, change_b))
                moved = features_change(first, first_moves)
                pulled_change_b = torch.baddbmm(pulled_change_b, matrix.mT, moved)
            leading.append(found[0])
            rest = found[1:] if rest is None else [x + y for x, y in zip(rest, found[1:])]
        assert rest is not None, "a coupling has rows"
        last = pull(second, pulled_b) if moves is None else pull_change(second, second_moves, pulled_b, pulled_change_b)
        return torch.cat([torch.cat(leading, 1), *rest, *last], 1).mul_(-self.scale)


def features(parts: Sequence[Tensor]) -> Tensor:
    """(b, n_1, d), …, (b, n_j, d) -> (b, n_1 ⋯ n_j, d): the product of the features of every tuple; a new tensor."""
    out = parts[0].clone()
    for part in parts[1:]:
        out = (out.unsqueeze(2) * part.unsqueeze(1)).flatten(1, 2)
    return out


def features_change(parts: Sequence[Tensor], moves: Sequence[Tensor]) -> Tensor:
    """The derivative of `features` when the parts move."""
    out, change = parts[0], moves[0]
    for part, move in zip(parts[1:], moves[1:]):
        change = (change.unsqueeze(2) * part.unsqueeze(1) + out.unsqueeze(2) * move.unsqueeze(1)).flatten(1, 2)
        out = (out.unsqueeze(2) * part.unsqueeze(1)).flatten(1, 2)
    return change


def pull(parts: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    """The gradients (b, n_l, d) of ⟨grad, features(parts)⟩."""
    first, rest = parts[0], parts[1:]
    if not rest:
        return [grad]
    table = grad.unflatten(1, (first.shape[1], -1))
    of_first = (table * features(rest).unsqueeze(1)).sum(2)
    return [of_first, *pull(rest, (table * first.unsqueeze(2)).sum(1))]


def pull_change(parts: Sequence[Tensor], moves: Sequence[Tensor], grad: Tensor, grad_move: Tensor) -> list[Tensor]:
    """The derivative of `pull` when the parts and the gradient move."""
    if len(parts) == 1:
        return [grad_move]
    first, move = parts[0].unsqueeze(2), moves[0].unsqueeze(2)
    rest, rest_move = features(parts[1:]).unsqueeze(1), features_change(parts[1:], moves[1:]).unsqueeze(1)
    table, table_move = (each.unflatten(1, (parts[0].shape[1], -1)) for each in (grad, grad_move))
    of_first = (table_move * rest + table * rest_move).sum(2)
    down, down_move = (table * first).sum(1), (table_move * first + table * move).sum(1)
    return [of_first, *pull_change(parts[1:], moves[1:], down, down_move)]
