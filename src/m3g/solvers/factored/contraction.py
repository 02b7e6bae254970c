"""Contraction of kernels of all pairs of views, by matrix products.

One view c is the pivot, and the other views are divided into two groups A and B. The leading view is the first of A.
Let α and β be tuples of points of A and of B, and let

- L[α, c] be the product of the kernels within A and between A and the pivot,
- R[β, c] the product of the kernels within B and between B and the pivot,
- W[α, β] the product of the kernels between A and B,

with the scalings of A and of the pivot included in L, and those of B in R. The joint marginals are then

    M = W ∘ (L Rᵀ)  of A and B,      L ∘ (W R)  of A and the pivot,      R ∘ (Wᵀ L)  of B and the pivot.

Three matrix products of n^k multiply-adds each therefore yield all pair marginals, without a tensor of n^k entries. A
large M is computed slab by slab.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from m3g.costs import along
from m3g.costs.coupling import Edge, pair_sums
from m3g.solvers.shared.dual import Contracted, Contraction
from m3g.solvers.shared.memory import Workspace
from m3g.solvers.shared.processes import Processes, Shard

# Size of a slab of M: small enough for the cache of a CPU, and large enough for efficient matrix products.
SLAB_BYTES = 2**23
# Maximum size of a stored W; a larger one is recomputed slab by slab in every step.
STORED_BYTES = 2**26
# Matrix products with fewer columns are slow on a CPU, and are computed in transposed form.
FEW_COLUMNS = 16


class CompleteContraction(Contraction):
    """Contraction of kernels {(l, m): (b, n_l, n_m)} of all pairs of views l < m.

    With four or more views, intermediate results of the size of M or R are written to buffers that are allocated once
    per solve. With `whole`, M is not split into slabs and there are no buffers, so that control flow does not depend on
    sizes, as compiled code requires. With `sharing`, only the rows of the leading view that belong to this process are
    contracted, and the pair marginals are those of its shard.

    Attributes:
        sizes: sizes of the views; that of the leading view counts only the rows of this process.
        num_tuples: number of tuples of the full coupling.
        joint_buffer: buffer for a slab of M (b, α, β); None if every result is a new tensor.
        scaled_buffer: buffer for R with scalings (b, β, n_c), or None.
    """

    def __init__(
        self,
        kernels: dict[Edge, Tensor],
        sizes: Sequence[int],
        *,
        whole: bool = False,
        sharing: Processes | None = None,
    ):
        k = len(sizes)
        self.num_tuples = math.prod(sizes)
        self.pivot = _largest(sizes) if k > 2 else None
        others = [l for l in range(k) if l != self.pivot]
        half = max(1, len(others) // 2)
        self.group_a, self.group_b = others[:half], others[half:]
        self.lead = self.group_a[0]
        self.shard = None if sharing is None else Shard(sharing, self.lead, sizes)
        self.kernels = kernels if self.shard is None else self.shard.own_pairs(kernels)
        self.sizes = list(sizes) if self.shard is None else self.shard.own_sizes
        self.between: Tensor | None = None
        self.joint_buffer: Tensor | None = None
        self.scaled_buffer: Tensor | None = None
        if self.pivot is None:
            return
        self.left, self.right = self._group_kernel(self.group_a), self._group_kernel(self.group_b)
        n = self.sizes[self.lead]
        self.slabs = [(0, n)] if whole else self._slabs()
        stored = whole or len(self.slabs) == 1 or self._lead_bytes() * n <= STORED_BYTES
        between: list[Tensor | None] = [None] * len(self.slabs)
        if k > 3 and not whole:
            between = self._allocate(len(self.slabs) if stored else 1)
        self._between_buffer = between[0]
        self._stored = [self._between(*slab, out) for slab, out in zip(self.slabs, between)] if stored else None
        if self._stored is not None and len(self.slabs) == 1:
            self.between = self._stored[0]

    def _allocate(self, num_slabs: int) -> list[Tensor | None]:
        """Return memory for W, one tensor per slab, and allocate `joint_buffer` and `scaled_buffer`."""
        b, beta, c = self.right.shape
        rows = self.left.shape[1] // self.sizes[self.lead] * self.slabs[0][1]  # the first slab is the largest
        slab, across = b * rows * beta, b * beta * c
        space = Workspace(self.right, (num_slabs + 1) * slab + across)
        self.joint_buffer, self.scaled_buffer = space.take(b, rows, beta), space.take(b, beta, c)
        return list(space.take(num_slabs, b, rows, beta))

    def fits_one_slab(self) -> bool:
        """Return whether M of the full coupling fits into one slab."""
        if self.pivot is None:
            return True
        rows = self.sizes[self.lead] if self.shard is None else self.shard.sizes[self.lead]
        return self.between is not None and rows * self._lead_bytes() <= SLAB_BYTES

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum over the leading view, given the sum over the rows of this process."""
        return tensor if self.shard is None else self.shard.processes.reduced(tensor)

    def _lead_bytes(self) -> int:
        """Return the bytes of M per point of the leading view."""
        example = self.kernels[0, 1]
        others = math.prod(self.sizes[l] for l in (*self.group_a[1:], *self.group_b))
        return example.shape[0] * others * example.element_size()

    def _slabs(self) -> list[tuple[int, int]]:
        n = self.sizes[self.lead]
        step = max(1, min(n, SLAB_BYTES // self._lead_bytes()))
        return [(start, min(start + step, n)) for start in range(0, n, step)]

    def kernel(self, l: int, m: int) -> Tensor:
        """Return the kernel of views l and m as a matrix (b, n_l, n_m), also if l > m."""
        return self.kernels[l, m] if l < m else self.kernels[m, l].transpose(1, 2)

    def _group_kernel(self, group: Sequence[int]) -> Tensor:
        """Return L or R without scalings, the product of the kernels within a group and with the pivot."""
        assert self.pivot is not None
        views = [*group, self.pivot]
        if len(views) == 2:
            return self.kernel(*views)
        edges = list(combinations(range(len(views)), 2))
        factors = [along(self.kernel(views[i], views[j]), (i, j), len(views)) for i, j in edges]
        out = factors[0]
        for edge, factor in zip(edges[1:], factors[1:]):
            # The product of the kernels of the first view has all axes; the others are multiplied in place.
            out = out * factor if edge[0] == 0 else out.mul_(factor)
        return out.flatten(1, -2)

    def _between(self, start: int, stop: int, buffer: Tensor | None) -> Tensor:
        """Return W for the points start:stop of the leading view: (b, α, β), in the buffer if given."""
        out = None
        for l in self.group_a:
            part = [self.kernel(l, m) for m in self.group_b]
            if l == self.lead and stop - start < self.sizes[l]:
                part = [kernel[:, start:stop] for kernel in part]
            row = part[0]
            for i, kernel in enumerate(part[1:], 2):
                last = i == len(part) and len(self.group_a) == 1
                row = _product(row.unsqueeze(-1), kernel.unsqueeze(-2), buffer if last else None).flatten(2)
            if out is None:
                out = row
            else:
                last = l == self.group_a[-1]
                out = _product(out.unsqueeze(2), row.unsqueeze(1), buffer if last else None).flatten(1, 2)
        assert out is not None
        return out

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        if self.pivot is None:
            return self._two_views(scalings, target)
        left = self.left * scalings[self.pivot].unsqueeze(1)
        if len(self.group_a) > 1:
            inner = outer([scalings[l] for l in self.group_a[1:]])
            left = (left.unflatten(1, (self.sizes[self.lead], -1)) * inner.unsqueeze(1)).flatten(1, 2)
        right = torch.mul(self.right, outer([scalings[m] for m in self.group_b]), out=self.scaled_buffer)
        if self.between is not None:
            joint, with_pivot, pulled, scaling = self._slab(left, right, self.between, target)
            pairs = self.pairs(joint, with_pivot, pulled.mul_(right))
        else:
            pairs, with_pivot, pulled, scaling = self._by_slabs(left, right, target)
            pairs = self.with_pivot(pairs, with_pivot, pulled.mul_(right))
        return Contracted(pairs, self.others(pairs), scaling)

    def pairs(self, joint: Tensor, joint_a: Tensor, joint_b: Tensor) -> dict[Edge, Tensor]:
        """Return all pair marginals from the joint marginals of A and B, of A and the pivot, and of B and the pivot.

        Their shapes are (b, α, β), (b, α, n_c) and (b, β, n_c).
        """
        views = self.group_a + self.group_b
        if len(views) > 2:
            joint = joint.view(joint.shape[0], *(self.sizes[l] for l in views))
        return self.with_pivot(pair_sums(joint, views), joint_a, joint_b)

    def with_pivot(self, pairs: dict[Edge, Tensor], joint_a: Tensor, joint_b: Tensor) -> dict[Edge, Tensor]:
        """Return pair marginals with those of the pivot added, from its joint marginals with A and with B."""
        assert self.pivot is not None
        for group, joint in ((self.group_a, joint_a), (self.group_b, joint_b)):
            if len(group) == 1:
                pairs[group[0], self.pivot] = joint
                continue
            joint = joint.unflatten(1, [self.sizes[l] for l in group])
            for i, l in enumerate(group):
                pairs[l, self.pivot] = joint.sum([j + 1 for j in range(len(group)) if j != i])
        if self.pivot < len(self.sizes) - 1:
            pairs = {(l, m) if l < m else (m, l): P if l < m else P.transpose(1, 2) for (l, m), P in pairs.items()}
        return pairs

    def _slab(
        self, left: Tensor, right: Tensor, between: Tensor, target: Tensor, added_to: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return M, the joint marginal of A and the pivot, Wᵀ L, and the scaling of the leading view, for one slab.

        Wᵀ L, a sum over the leading view, is added to `added_to`, the sum over the previous slabs, if given.
        """
        buffer = None if self.joint_buffer is None else self.joint_buffer[:, : left.shape[1]]
        joint = torch.bmm(left, right.transpose(1, 2), out=buffer).mul_(between)
        b, n = target.shape
        by_lead = joint if len(self.group_a) == 1 else joint.view(b, n, -1)
        scaling = target / by_lead.sum(-1)
        column = scaling.unsqueeze(-1)
        by_lead.mul_(column)
        left = left * column if len(self.group_a) == 1 else (left.view(b, n, -1) * column).view(left.shape)
        with_pivot = times(between, right).mul_(left)
        if added_to is None:
            pulled = times(between.transpose(1, 2), left)
        else:
            pulled = added_to.baddbmm_(between.transpose(1, 2), left)
        return joint, with_pivot, pulled, scaling

    def _by_slabs(
        self, left: Tensor, right: Tensor, target: Tensor
    ) -> tuple[dict[Edge, Tensor], Tensor, Tensor, Tensor]:
        """Return the pair marginals of A and B, and the last three results of `_slab`, for all slabs together."""
        views = self.group_a + self.group_b
        per_lead = left.shape[1] // self.sizes[self.lead]
        pairs: list[dict[Edge, Tensor]] = []
        with_pivot: list[Tensor] = []
        scalings: list[Tensor] = []
        total: Tensor | None = None
        for i, (start, stop) in enumerate(self.slabs):
            between = self._between(start, stop, self._between_buffer) if self._stored is None else self._stored[i]
            rows = left[:, start * per_lead : stop * per_lead]
            joint, joint_a, total, scaling = self._slab(rows, right, between, target[:, start:stop], total)
            shape = (joint.shape[0], stop - start, *(self.sizes[l] for l in views[1:]))
            pairs.append(pair_sums(joint.view(shape), views))
            with_pivot.append(joint_a)
            scalings.append(scaling)
        assert total is not None
        # Slabs divide the leading view: pairs with it are concatenated, pairs of other views are summed.
        joined = {
            edge: torch.cat([part[edge] for part in pairs], 1)
            if edge[0] == self.lead
            else torch.stack([part[edge] for part in pairs]).sum(0)
            for edge in pairs[0]
        }
        return joined, torch.cat(with_pivot, 1), total, torch.cat(scalings, 1)

    def others(self, pairs: dict[Edge, Tensor]) -> Tensor:
        """Return the marginals of all views except the leading one, concatenated: (b, sum of their sizes)."""
        lead, others = self.lead, [l for l in range(len(self.sizes)) if l != self.lead]
        if lead == 0:
            return torch.cat([pairs[0, l] for l in others], 2).sum(1)
        return torch.cat([pairs[lead, l].sum(1) if l > lead else pairs[l, lead].sum(2) for l in others], 1)

    def _two_views(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        joint = self.kernels[0, 1] * scalings[1].unsqueeze(1)
        scaling = target / joint.sum(2)
        joint.mul_(scaling.unsqueeze(2))
        return Contracted({(0, 1): joint}, joint.sum(1), scaling)


def times(matrix: Tensor, columns: Tensor) -> Tensor:
    """Return T V (b, s, c) of T (b, s, n) and V (b, n, c).

    If c is small, the product is computed as (Vᵀ Tᵀ)ᵀ, which is up to four times as fast.
    """
    if torch.compiler.is_compiling() or columns.shape[2] >= FEW_COLUMNS or matrix.shape[1] <= columns.shape[2]:
        return torch.bmm(matrix, columns)
    return torch.bmm(columns.mT, matrix.mT).mT


def _largest(sizes: Sequence[int]) -> int:
    """Return the index of the largest view, the last one in case of a tie.

    As the pivot, it gives matrix products with the longest inner dimension.
    """
    largest = len(sizes) - 1
    for l in range(len(sizes) - 1):
        if sizes[l] > sizes[largest]:
            largest = l
    return largest


def _product(x: Tensor, y: Tensor, buffer: Tensor | None) -> Tensor:
    """Return the broadcast product x · y, in the first rows of the buffer (b, α, β) if given."""
    if buffer is None:
        return x * y
    shape = torch.broadcast_shapes(x.shape, y.shape)
    rows = math.prod(shape[1:]) // buffer.shape[2]
    return torch.mul(x, y, out=buffer[:, :rows].view(shape))


def outer(vectors: Sequence[Tensor]) -> Tensor:
    """Return the outer product as a column: (b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j, 1)."""
    out = vectors[0].unsqueeze(-1)
    for vector in vectors[1:]:
        out = (out * vector.unsqueeze(1)).view(out.shape[0], -1, 1)
    return out
