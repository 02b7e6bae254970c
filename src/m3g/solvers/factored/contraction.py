"""Marginals of a coupling whose kernel is a product over all pairs of views, by matrix products.

With one view c (the pivot) eliminated and the others split into two groups A and B,

    T[α, β] = Σ_c L[α, c] R[β, c],      M[α, β] = W[α, β] T[α, β]

where L holds all kernels inside A and from A to c, R those inside B and from B to c, and W those between A and B.
M is the joint marginal of all views but c. The derivatives of the total mass give the rest: L ∘ (W R) is the joint
marginal of A and c, R ∘ (Wᵀ L) that of B and c. So three matrix products of n^k multiply-adds yield every pair
marginal, and nothing larger than a slab of M is held.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from m3g.costs import along
from m3g.costs.coupling import Edge

# A slab of M that stays in the cache of a CPU, and is large enough to fill the matrix products.
SLAB_BYTES = 2**23
# W is kept between steps up to this size, and built anew slab by slab past it.
KEEP_BYTES = 2**26


class _Buffers(threading.local):
    """Memory that is written anew at every step: fresh pages for a large tensor cost as much as filling it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        held = self.tensors.get(name)
        if (
            held is None
            or held.shape != shape
            or held.dtype != like.dtype
            or held.is_inference() != like.is_inference()
        ):
            held = like.new_empty(shape)
            if held.nbytes <= SLAB_BYTES:
                self.tensors[name] = held
        return held


# One solve after the other in a thread, so they can use the same memory; what is too large to keep is not kept.
_lent = _Buffers()


class CompleteContraction:
    """Kernels {(l, m): (b, n_l, n_m)} for every l < m; see `evaluate`."""

    def __init__(self, kernels: dict[Edge, Tensor], sizes: Sequence[int]):
        self.kernels = kernels
        self.sizes = list(sizes)
        k = len(sizes)
        # The largest view makes the longest inner dimension; of equal ones the last.
        self.pivot = max(range(k), key=lambda l: (sizes[l], l)) if k > 2 else None
        others = [l for l in range(k) if l != self.pivot]
        half = max(1, len(others) // 2)
        self.group_a, self.group_b = others[:half], others[half:]
        self.lead = self.group_a[0]
        example = kernels[0, 1]
        self.num_batch = example.shape[0]
        # With three views buffers are a part of the answer, so they cannot be lent to the next solve.
        self._buffers = _lent if k > 3 and example.device.type == "cpu" else _Buffers()
        if self.pivot is not None:
            self.left, self.right = self._towards_pivot(self.group_a), self._towards_pivot(self.group_b)
        rows = math.prod(sizes[l] for l in self.group_a[1:])
        per_lead = self.num_batch * rows * math.prod(sizes[m] for m in self.group_b) * example.element_size()
        n, step = sizes[self.lead], max(1, min(sizes[self.lead], SLAB_BYTES // per_lead))
        self.slabs = [(start, min(start + step, n)) for start in range(0, n, step)]
        self._kept: dict[int, Tensor] | None = {} if per_lead * sizes[self.lead] <= KEEP_BYTES else None

    def kernel(self, l: int, m: int) -> Tensor:
        """The kernel with view l in the rows."""
        return self.kernels[l, m] if l < m else self.kernels[m, l].transpose(1, 2)

    def _towards_pivot(self, group: Sequence[int]) -> Tensor:
        """(b, Π n_l, n_c): all kernels inside the group and from it to the pivot."""
        assert self.pivot is not None
        out = self.kernel(group[0], self.pivot)
        for l in group[1:]:
            out = self._product(f"towards {l}", out.unsqueeze(2), self.kernel(l, self.pivot).unsqueeze(1)).flatten(1, 2)
        inside = None
        for i, j in combinations(range(len(group)), 2):
            factor = along(self.kernel(group[i], group[j]), (i, j), len(group))
            inside = factor if inside is None else inside * factor
        return out if inside is None else out.mul_(inside.flatten(1).unsqueeze(-1))

    def _between(self, start: int, stop: int) -> Tensor:
        """W for points start:stop of the leading view: (b, α, β)."""
        if self._kept is not None and start in self._kept:
            return self._kept[start]
        out = None
        for l in self.group_a:
            part = [self.kernel(l, m) for m in self.group_b]
            if l == self.lead and len(self.slabs) > 1:
                part = [kernel[:, start:stop] for kernel in part]
            row = part[0]
            for m, kernel in zip(self.group_b[1:], part[1:]):
                row = self._product(f"{start}: {l} to {m}", row.unsqueeze(-1), kernel.unsqueeze(-2)).flatten(2)
            if out is None:
                out = row
            else:
                out = self._product(f"{start}: up to {l}", out.unsqueeze(2), row.unsqueeze(1)).flatten(1, 2)
        assert out is not None
        if self._kept is not None:
            self._kept[start] = out
        return out

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> tuple[dict[Edge, Tensor], list[Tensor], Tensor]:
        """Marginals of P = Π u_l Π K_lm after the leading view has been scaled to its target.

        Args:
            scalings: k tensors u_l (b, n_l).
            target: (b, n) marginal of the leading view, which is met exactly.

        Returns:
            {(l, m): (b, n_l, n_m)} for l < m, the k marginals (b, n_l), and the factor (b, n) by which the leading
            scaling was multiplied.
        """
        if self.pivot is None:
            return self._two_views(scalings, target)
        b, sizes = self.num_batch, self.sizes
        shape_a = [sizes[l] for l in self.group_a]
        shape_b = [sizes[m] for m in self.group_b]
        scale_a = outer([scalings[l] for l in self.group_a]).unsqueeze(-1)
        left = self.left * (scale_a * scalings[self.pivot].unsqueeze(1))
        right = self._product("right", self.right, outer([scalings[m] for m in self.group_b]).unsqueeze(-1))
        right_transposed = right.transpose(1, 2)
        per_lead = left.shape[1] // sizes[self.lead]
        found: list[dict[Edge, Tensor]] = []
        with_pivot: list[Tensor] = []
        factors: list[Tensor] = []
        pull_right = self._buffers.take("pull", right.shape, right)
        for start, stop in self.slabs:
            between = self._between(start, stop)
            rows = left if len(self.slabs) == 1 else left[:, start * per_lead : stop * per_lead]
            # With three views the slab is itself a part of the answer, and must outlive the next one.
            joint = self._buffers.take(f"joint {start}" if len(sizes) == 3 else "joint", between.shape, right)
            torch.bmm(rows, right_transposed, out=joint)
            joint = joint.mul_(between).view(b, stop - start, -1)
            factor = (target[:, start:stop] / joint.sum(-1)).unsqueeze(-1)
            joint *= factor
            rows = (rows.reshape(b, stop - start, -1) * factor).view(rows.shape)
            with_pivot.append(torch.bmm(between, right).mul_(rows))
            torch.baddbmm(pull_right, between.transpose(1, 2), rows, beta=int(start > 0), out=pull_right)
            factors.append(factor.squeeze(-1))
            found.append(pair_sums(joint.view(b, stop - start, *shape_a[1:], *shape_b), self.group_a + self.group_b))
        pairs = {edge: self._gather_slabs(edge, [part[edge] for part in found]) for edge in found[0]}
        joint_a = join(with_pivot).view(b, *shape_a, -1)
        joint_b = pull_right.mul_(right).view(b, *shape_b, -1)
        for group, joint in ((self.group_a, joint_a), (self.group_b, joint_b)):
            for i, l in enumerate(group):
                rest = [j + 1 for j in range(len(group)) if j != i]
                pairs[l, self.pivot] = joint.sum(rest) if rest else joint
        if self.pivot < len(sizes) - 1:
            pairs = {(l, m) if l < m else (m, l): P if l < m else P.transpose(1, 2) for (l, m), P in pairs.items()}
        singles = [pairs[0, 1].sum(2)] + [pairs[0, l].sum(1) for l in range(1, len(sizes))]
        return pairs, singles, join(factors)

    def _product(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """x * y, broadcast, in memory of that name."""
        shape = torch.broadcast_shapes(x.shape, y.shape)
        return torch.mul(x, y, out=self._buffers.take(name, shape, x))

    def _two_views(self, scalings: Sequence[Tensor], target: Tensor) -> tuple[dict[Edge, Tensor], list[Tensor], Tensor]:
        joint = self.kernels[0, 1] * scalings[1].unsqueeze(1)
        factor = target / joint.sum(2)
        joint *= factor.unsqueeze(2)
        return {(0, 1): joint}, [target, joint.sum(1)], factor.div_(scalings[0])

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        raise AssertionError("evaluate finds every pair of a complete graph")

    def _gather_slabs(self, edge: Edge, parts: list[Tensor]) -> Tensor:
        """Slabs run along the leading view: its pairs are joined, those of other views added."""
        return join(parts) if edge[0] == self.lead else torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def outer(vectors: Sequence[Tensor]) -> Tensor:
    """(b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j)."""
    out = vectors[0]
    for vector in vectors[1:]:
        out = (out.unsqueeze(-1) * vector.unsqueeze(1)).flatten(1)
    return out


def pair_sums(joint: Tensor, views: list[int]) -> dict[Edge, Tensor]:
    """Every two-view marginal of a joint tensor (b, n_1, …, n_j), with three passes over the whole of it."""
    if len(views) == 2:
        return {(views[0], views[1]): joint}
    found = pair_sums(joint.sum(-1), views[:-1])
    *rest, last = views
    while len(rest) > 1:
        found[rest[-1], last] = joint.sum(list(range(1, joint.ndim - 2)))
        joint = joint.sum(-2)
        rest.pop()
    found[rest[0], last] = joint
    return found
