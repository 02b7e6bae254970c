"""Interface of couplings, and operations on tensors with one axis per view."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from m3g.costs.contraction import overwritable, pair_marginals_of_slabs, parts_of, with_view
from m3g.costs.multilinear import pull_from_rows

Edge = tuple[int, int]


def all_edges(k: int) -> list[Edge]:
    """Return the k(k-1)/2 pairs of views in lexicographic order."""
    return list(combinations(range(k), 2))


def all_equal(sizes: Sequence[int]) -> bool:
    """Return whether all views have the same size. Comparisons keep sizes symbolic during tracing, unlike a set."""
    return all(n == sizes[0] for n in sizes)


def along(vector: Tensor, axes: Sequence[int], k: int) -> Tensor:
    """Reshape (b, n_l) or (b, n_l, n_m) so that it broadcasts against (b, n_1, …, n_k) on the given axes."""
    shape = [vector.shape[0]] + [1] * k
    for axis, size in zip(axes, vector.shape[1:]):
        shape[axis + 1] = size
    return vector.reshape(shape)


def block_matrix(pairs: dict[Edge, Tensor], marginals: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the matrix (b, N, N) with blocks diag(m_l) on the diagonal and P_lm elsewhere; marginals m are (b, N)."""
    starts = [sum(sizes[:l]) for l in range(len(sizes))]
    out = torch.diag_embed(marginals)
    for (l, m), pair in pairs.items():
        rows = slice(starts[l], starts[l] + sizes[l])
        columns = slice(starts[m], starts[m] + sizes[m])
        out[:, rows, columns] = pair
        out[:, columns, rows] = pair.transpose(1, 2)
    return out


def block_product(pairs: dict[Edge, Tensor], marginals: Tensor, sizes: Sequence[int], points: Tensor) -> Tensor:
    """Return the product of `block_matrix` and points (b, N, d), without building the matrix."""
    if not (overwritable(points) and overwritable(marginals)):
        return torch.bmm(block_matrix(pairs, marginals, sizes), points)
    out = marginals.unsqueeze(-1) * points
    parts, sums = (torch.split_with_sizes(each, list(sizes), 1) for each in (points, out))
    for (l, m), pair in pairs.items():
        sums[l].baddbmm_(pair, parts[m])
        sums[m].baddbmm_(pair.mT, parts[l])
    return out


class SquaredMeans:
    """Squared length |mean_m x_m[t_m]|² of the mean of every tuple t, from inner products of the points (b, N, d)."""

    def __init__(self, points: Tensor, sizes: Sequence[int]):
        k, sizes = len(sizes), list(sizes)
        parts = torch.split_with_sizes(points, sizes, 1)
        singles = torch.split_with_sizes((torch.linalg.vecdot(points, points) / k**2).unsqueeze(2), sizes, 1)

        def products(l: int, m: int) -> Tensor:
            return torch.baddbmm(singles[l], parts[l], parts[m].mT, beta=int(m == k - 1), alpha=2 / k**2)

        # |Σ x|² = Σ_l |x_l|² + 2 Σ_{l<m} ⟨x_l, x_m⟩. The term |x_l|² is added to the last pair of view l.
        self.pairs, *rest = [[products(l, m) for m in range(l + 1, k)] for l in range(k - 1)]
        self.rest = singles[-1].squeeze(2)
        for pairs in reversed(rest):
            self.rest = with_view(self.rest, pairs)

    def slab(self, rows: slice) -> Tensor:
        """Return (b, rows, n_2, …, n_k), a new tensor, for the tuples whose first point is in `rows`."""
        return with_view(self.rest, [pair[:, rows] for pair in self.pairs])


def mean_products(points: Tensor, others: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return ⟨mean_m x_m[t_m], mean_m y_m[t_m]⟩ of all tuples: (b, n_1, …, n_k), without n^k d intermediates."""
    k = len(sizes)
    first, second = ((each / k).split(list(sizes), 1) for each in (points, others))
    total = points.new_zeros(points.shape[0], *sizes)
    for l in range(k):
        total = total + along((first[l] * second[l]).sum(-1), (l,), k)
    for l, m in all_edges(k):
        both = torch.bmm(first[l], second[m].transpose(1, 2)) + torch.bmm(second[l], first[m].transpose(1, 2))
        total = total + along(both, (l, m), k)
    return total


class Coupling(ABC):
    """Coupling P of k views, accessed through its marginals and sums over tuples.

    Attributes:
        sizes: numbers of points n_1, …, n_k.
        from_potentials: whether P = exp((⊕f - C) / eps) at the potentials f of the solution, so that P is a
            differentiable function of the cost.
    """

    sizes: Sequence[int]
    from_potentials: bool = True

    @abstractmethod
    def marginal(self, l: int) -> Tensor:
        """Return the marginal of view l: (b, n_l)."""

    @abstractmethod
    def pair(self, l: int, m: int) -> Tensor:
        """Return the pair marginal of views l < m: (b, n_l, n_m)."""

    @abstractmethod
    def rows(self) -> Iterable[tuple[slice, Tensor]]:
        """Yield pairs (rows, slab): the full tensor, divided along view 0 into slabs (b, rows, n_2, …, n_k)."""

    def unscaled_rows(self) -> tuple[Iterable[tuple[slice, Tensor]], list[Tensor] | None, bool]:
        """Return slabs of a kernel K, scalings u_l (b, n_l) with P = K ∘ (u_1 ⊗ … ⊗ u_k), and whether K is disposable.

        None for the scalings means 1. The caller may overwrite a disposable K.
        """
        return self.rows(), None, False

    def pull(self, points: Tensor) -> Tensor:
        """Return P_l x_l + Σ_{m ≠ l} P_lm x_m for every view l, from its marginal P_l and its pair marginals P_lm.

        Points and result are concatenated over the views: (b, N, d).
        """
        k = len(self.sizes)
        pairs = {edge: self.pair(*edge) for edge in all_edges(k)}
        marginals = torch.cat([self.marginal(l) for l in range(k)], 1)
        return block_product(pairs, marginals, self.sizes, points)

    def product_pull(self, points: Tensor) -> Tensor:
        """Return Σ_t P(t) Π_{m ≠ l} x_m[t_m] over the tuples t with t_l = i, for every point i of every view l.

        The result is a new tensor (b, N, d).
        """
        slabs, scalings, disposable = self.unscaled_rows()
        if scalings is None:
            return pull_from_rows(slabs, self.sizes, points)
        scaling = torch.cat(scalings, 1).unsqueeze(2)
        return pull_from_rows(slabs, self.sizes, points * scaling, disposable=disposable).mul_(scaling)

    def squared_means(self, points: Tensor) -> SquaredMeans:
        """Return the squared lengths of the means of all tuples of the points (b, N, d) of the solved problem."""
        return SquaredMeans(points, self.sizes)

    def weighted_pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
        """Return Σ_t P(t) / w(|mean_m x_m[t_m]|²) Σ_m x_m[t_m] over the tuples t with t_l = i, for every point i.

        Here l is the view of i, and w is `divisor`, which may overwrite its argument. For w = 1, the result (b, N, d)
        is that of `pull`. This implementation reads the full tensor, slab by slab.
        """
        k, squares = len(self.sizes), self.squared_means(points)
        slabs, scalings, disposable = self.unscaled_rows()
        if scalings is None:
            scalings = list(torch.ones_like(points[..., 0]).split(list(self.sizes), 1))

        def weighted() -> Iterator[tuple[slice, Tensor]]:
            if not disposable:
                for rows, slab in parts_of(slabs):
                    yield rows, _divided(slab, divisor(squares.slab(rows)))
                return
            for rows, slab in slabs:
                for part_rows, part in parts_of([(rows, slab)]):
                    part.div_(divisor(squares.slab(part_rows)))
                yield rows, slab

        pairs = pair_marginals_of_slabs(weighted(), scalings)
        marginals = torch.cat([pairs[0, 1].sum(2), *(pairs[0, l].sum(1) for l in range(1, k))], 1)
        return block_product(pairs, marginals, self.sizes, points)


def _divided(slab: Tensor, divisor: Tensor) -> Tensor:
    """Return slab / divisor, written to the memory of `divisor` unless under torch.func or torch.compile.

    Under torch.vmap, the slab may have a batch dimension that the divisor does not have.
    """
    return torch.div(slab, divisor, out=divisor) if overwritable(slab) else slab / divisor


@dataclass
class PairCoupling(Coupling):
    """Measure given by its marginals and pair marginals. It may be signed, like the derivative of a coupling."""

    pairs: dict[Edge, Tensor]
    marginals: list[Tensor]
    sizes: Sequence[int]

    def marginal(self, l: int) -> Tensor:
        return self.marginals[l]

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs[l, m]

    def rows(self) -> Iterable[tuple[slice, Tensor]]:
        raise AssertionError("a pairwise cost never reads the full tensor")


@dataclass
class TensorCoupling(Coupling):
    """Measure given by the full tensor (b, n_1, …, n_k). It may be signed."""

    tensor: Tensor

    @property
    def sizes(self) -> Sequence[int]:  # type: ignore[override]
        return self.tensor.shape[1:]

    def marginal(self, l: int) -> Tensor:
        return sum_onto(self.tensor, (l,))

    def pair(self, l: int, m: int) -> Tensor:
        return sum_onto(self.tensor, (l, m))

    def rows(self) -> Iterable[tuple[slice, Tensor]]:
        yield slice(0, self.tensor.shape[1]), self.tensor


def sum_onto(tensor: Tensor, views: Sequence[int]) -> Tensor:
    """Return the marginal of (b, n_1, …, n_k) on some views: the sum over all others."""
    summed = [l + 1 for l in range(tensor.ndim - 1) if l not in views]
    return tensor.sum(summed) if summed else tensor


def pair_sums(joint: Tensor, views: list[int]) -> dict[Edge, Tensor]:
    """Return all pair marginals of a joint marginal (b, n_1, …, n_j), by three passes over it."""
    if len(views) == 2:
        return {(views[0], views[1]): joint}
    pairs = pair_sums(joint.sum(-1), views[:-1])
    *rest, last = views
    while len(rest) > 1:
        pairs[rest[-1], last] = joint.sum(list(range(1, joint.ndim - 2)))
        joint = joint.sum(-2)
        rest.pop()
    pairs[rest[0], last] = joint
    return pairs
