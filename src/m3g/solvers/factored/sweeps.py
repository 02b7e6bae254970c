"""Sinkhorn sweeps by matrix products. They reach a moderate tolerance with few operations if epsilon is not small.

The groups A (with α tuples) and B (with β tuples), the pivot c, and the products L, R and W of kernels are defined in
contraction.py. Here, the products do not include the scalings. With the scalings u of A, v of B and w of c, the joint
marginal of A and B and the marginal of the pivot are

    P_AB = diag(u) M diag(v),      M = W ∘ (L diag(w) Rᵀ),      m_c = w ∘ (uᵀ (L ∘ (W diag(v) R)))

M depends on neither u nor v. A sweep therefore requires two matrix products: one for M, with which every view of A and
B is updated by a matrix–vector product, and one for the update of the pivot. Two views have no pivot: M is their
kernel, and a sweep consists of two updates (`sweep_two`).

Vectors are rows (b, 1, n). The `sums` of a view are its marginal without its scaling, so the updated scaling is
`target / sums`, where `target` are the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from m3g.costs.coupling import Edge, pair_sums
from m3g.solvers.factored.contraction import FEW_COLUMNS, CompleteContraction, times
from m3g.solvers.shared.processes import read

Summed = Callable[[Tensor], Tensor]

# Values of `Kernels.reach`, the bound on the exponent of a tuple. For every multiple of FLAT_REACH, one more sweep
# (for two views, two more) precedes the first reading of the error. Beyond SWEPT_REACH, there are no sweeps, because
# Newton steps converge faster from balanced kernels.
FLAT_REACH, SWEPT_REACH = 6.0, 60.0
# Maximum number of sweeps before the error is first read, for small and for large problems. In a large problem, with
# more than LONG tuples, reading the error is cheap compared with a sweep. For two views, the maximum is 2 · SWEEPS.
SWEEPS, LONG_SWEEPS = 3, 2
LONG = 2**20
# Expected ratio of successive errors before it has been observed, for three or more views and for two.
EXPECTED_RATE, EXPECTED_RATE_OF_TWO = 0.1, 0.3


def complete(tensor: Tensor) -> Tensor:
    """Return the tensor unchanged: on a single process, every sum is complete."""
    return tensor


class PivotProducts:
    """The two matrix products of a sweep; both involve the pivot. The next sweep overwrites their results.

    Attributes:
        sums: (b, 1, n_c), the current sums of the pivot.
        sums_used: (b, 1, n_c), the sums from which M was computed.
        with_pivot: (b, α, n_c), the product L ∘ (W diag(v) R).
    """

    sums_used: Tensor
    with_pivot: Tensor | None = None
    _scaled_left: Tensor | None = None

    def __init__(self, contraction: CompleteContraction, between: Tensor, target: Tensor):
        self._joint: Tensor | None = contraction.joint_buffer
        self._scaled_right: Tensor | None = None if contraction.scaled_buffer is None else contraction.scaled_buffer.mT
        self.left, self.across, self.between, self.target = contraction.left, contraction.right.mT, between, target
        self._start = self.left * target
        few = self.left.shape[2] < min(self.left.shape[1], 2 * FEW_COLUMNS)
        self._left_rows = self.left.mT.contiguous() if few else None
        self._summed = contraction.summed
        # The initial sums do not include the kernels between A and B.
        self.sums = self._summed(self.left.sum(1, keepdim=True)).mul_(contraction.right.sum(1, keepdim=True))

    def joint(self) -> Tensor:
        """Return M (b, α, β) after the update of w."""
        self.sums_used = self.sums
        self._scaled_left = torch.div(self._start, self.sums, out=self._scaled_left)
        joint = torch.bmm(self._scaled_left, self.across, out=self._joint).mul_(self.between)
        self._joint = joint
        return joint

    def update_sums(self, left: Tensor, right: Tensor) -> None:
        """Compute the sums of the pivot for scalings u (b, 1, α) and v (b, 1, β)."""
        scaled_right = torch.mul(self.across, right, out=self._scaled_right)
        self._scaled_right = scaled_right
        if self._left_rows is None:
            self.with_pivot = torch.bmm(self.between, scaled_right.mT, out=self.with_pivot).mul_(self.left)
        else:  # transposed as in `times`, into the memory of the previous result
            rows = None if self.with_pivot is None else self.with_pivot.mT
            self.with_pivot = torch.bmm(scaled_right, self.between.mT, out=rows).mul_(self._left_rows).mT
        self.sums = self._summed(torch.bmm(left, self.with_pivot))

    @property
    def scaling(self) -> Tensor:
        """The scaling w (b, 1, n_c) with which M was computed."""
        return self.target / self.sums_used

    def pairs(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the joint marginals of A and the pivot, and of B and the pivot, by one more matrix product."""
        assert self.with_pivot is not None, "at least one sweep precedes"
        scaling, column = self.scaling, left.mT
        pulled = times(self.between.mT, self.left * column).mul_(self.across.mT).mul_(right.mT)
        return (self.with_pivot * column).mul_(scaling), pulled.mul_(scaling)


class Swept(NamedTuple):
    """Result of the sweeps.

    Attributes:
        joint: (b, α, β), the matrix M.
        parts_a, parts_b: scalings (b, 1, n_l) of the views of A and B.
        left, right: their outer products u (b, 1, α) and v (b, 1, β).
        pivot: the products of the pivot; None for two views.
        scalings: (b, 1, N), the scalings of all views, concatenated.
        error: (b,), the marginal error, and `worst`, its maximum over the batch.
        num_steps: number of sweeps.
    """

    contraction: CompleteContraction
    joint: Tensor
    parts_a: Sequence[Tensor]
    parts_b: Sequence[Tensor]
    left: Tensor
    right: Tensor
    pivot: PivotProducts | None
    scalings: Tensor
    error: Tensor
    worst: float
    num_steps: int

    def log_scaling(self) -> Tensor:
        return self.scalings.log().squeeze(1)

    def pairs(self) -> dict[Edge, Tensor]:
        """Return all pair marginals of the slab of this process; for k > 3, by products of M with vectors."""
        c = self.contraction
        if self.pivot is None or len(c.sizes) == 3:
            joint = (self.joint * self.left.mT).mul_(self.right)
            return {(0, 1): joint} if self.pivot is None else c.pairs(joint, *self.pivot.pairs(self.left, self.right))
        by_b = sums_of_each(self.joint, self.parts_b)
        pairs = {
            (l, m): pair.mT
            for m, joint in zip(c.group_b, by_b)
            for l, pair in zip(c.group_a, sums_of_each(joint.mT, self.parts_a))
        }
        joint_a = by_b[0].sum(2).unsqueeze(1) * self.left
        joint_b = torch.bmm(self.left, self.joint).mul_(self.right)
        for group, joint in ((c.group_a, joint_a), (c.group_b, joint_b)):
            if len(group) > 1:
                pairs.update(pair_sums(joint.view(joint.shape[0], *(c.sizes[l] for l in group)), group))
        return c.with_pivot(pairs, *self.pivot.pairs(self.left, self.right))


def sweep(contraction: CompleteContraction, target: Tensor, *, tol: float, reach: float, max_steps: int) -> Swept:
    """Sweep until the marginals are within `tol` of the weights `target` (b, N), or Newton steps would be faster.

    `reach` is `Kernels.reach`. The leading view is updated last, so that its marginal is exact.
    """
    c = contraction
    if c.pivot is None or c.between is None:
        return sweep_two(c, target, tol=tol, reach=reach, max_steps=max_steps)
    target = target.unsqueeze(1)
    targets = torch.split_with_sizes(target if c.shard is None else c.shard.own(target), c.sizes, 2)
    targets_a, targets_b = [targets[l] for l in c.group_a], [targets[m] for m in c.group_b]
    pivot = PivotProducts(c, c.between, targets[c.pivot])
    joint = pivot.joint()
    transposed = joint.mT
    parts_a, parts_b = targets_a, targets_b
    parts_a = updated_scalings(torch.bmm(outer(parts_b), transposed), parts_a, targets_a, c.summed)
    left = outer(parts_a)
    max_first = LONG_SWEEPS if target.shape[0] * c.num_tuples > LONG else SWEEPS
    views = [*c.group_a, *c.group_b, c.pivot]
    order = [views.index(l) for l in range(len(views))]
    num_steps, chunk = 0, min(max_first, 1 + int(reach / FLAT_REACH), max_steps)
    worst, rate = math.inf, EXPECTED_RATE
    while True:
        for remaining in range(chunk - 1, -1, -1):
            if num_steps > 0:
                pivot.joint()
            # An update of one view of a group changes the marginals of the others, so the last sweep has two rounds.
            for _ in range(2 if remaining == 0 and len(targets_b) > 1 else 1):
                parts_b = updated_scalings(c.summed(torch.bmm(left, joint)), parts_b, targets_b)
                right = outer(parts_b)
                sums_a = torch.bmm(right, transposed)
                parts_a = updated_scalings(sums_a, parts_a, targets_a, c.summed)
                left = outer(parts_a)
            pivot.update_sums(left, right)
            num_steps += 1
        sums_b = c.summed(torch.bmm(left, joint))
        sums = [*sums_by_view(sums_a, parts_a, c.summed), *sums_by_view(sums_b, parts_b), pivot.sums]
        by_group = [*parts_a, *parts_b, pivot.scaling]
        scalings, marginals = (torch.cat([each[i] for i in order], 2) for each in (by_group, sums))
        if c.shard is not None:
            scalings, marginals = c.shard.joined(torch.cat([scalings, marginals], 1)).split(1, 1)
        residual = torch.addcmul(target, marginals, scalings, value=-1)
        before = worst
        error, worst = _errors(residual)
        rate = rate if before == math.inf else worst / before
        # If the next sweep is not expected to reach `tol`, stop: Newton steps are faster than two further sweeps. The
        # second condition is also true for NaN.
        if worst <= tol or not worst * rate <= tol or num_steps >= max_steps:
            return Swept(c, joint, parts_a, parts_b, left, right, pivot, scalings, error, worst, num_steps)
        chunk = 1


def sweep_two(contraction: CompleteContraction, target: Tensor, *, tol: float, reach: float, max_steps: int) -> Swept:
    """Sweep for two views: a sweep updates view 1 and then view 0.

    For weights a and b, the initial scaling of view 0 is u = a / √(K b), half an update in logarithms. A full update,
    a / (K b), would attribute all differences between row sums to view 0, and two more sweeps would be required.
    """
    kernel = contraction.kernels[0, 1]
    transposed = kernel.mT
    shard, summed = contraction.shard, contraction.summed
    target = (target if shard is None else shard.own(target)).unsqueeze(1)
    target_a, target_b = torch.split_with_sizes(target, contraction.sizes, 2)
    left = torch.bmm(target_b, transposed).rsqrt_().mul_(target_a)
    sums = summed(torch.bmm(left, kernel))
    num_steps, chunk = 0, min(2 * min(SWEEPS, 1 + int(reach / FLAT_REACH)), max_steps)
    worst, rate = math.inf, EXPECTED_RATE_OF_TWO
    while True:
        for _ in range(chunk):
            right = target_b / sums
            left = target_a / torch.bmm(right, transposed)
            sums = summed(torch.bmm(left, kernel))
        num_steps += chunk
        before = worst
        error, worst = _errors(torch.addcmul(target_b, sums, right, value=-1))
        rate = rate if before == math.inf else (worst / before) ** (1 / chunk)
        chunk = 1 if worst * rate <= tol else 2
        if worst <= tol or not worst * rate**2 <= tol or num_steps + chunk > max_steps:
            scalings = torch.cat([left, right], 2)
            scalings = scalings if shard is None else shard.joined(scalings)
            return Swept(contraction, kernel, [left], [right], left, right, None, scalings, error, worst, num_steps)


def _errors(residual: Tensor) -> tuple[Tensor, float]:
    """Return the error (b,) of a residual (b, 1, N), and its maximum over the batch."""
    error = torch.linalg.vector_norm(residual, ord=1, dim=(1, 2))
    return error, read(error)


def updated_scalings(
    sums: Tensor, scalings: Sequence[Tensor], targets: Sequence[Tensor], summed: Summed = complete
) -> list[Tensor]:
    """Return the scalings (b, 1, n_l) of a group of views after an update of each; the last view is updated first.

    Args:
        sums: (b, 1, n_1 ⋯ n_j), the joint marginal of the group without its scalings.
        targets: the weights (b, 1, n_l).
        summed: function that completes a sum over the first view, if this process has only some of its rows.
    """
    if len(targets) == 1:
        return [targets[0] / sums]
    table = sums.view(sums.shape[0], targets[0].shape[2], -1)
    rest = updated_scalings(summed(torch.bmm(scalings[0], table)), scalings[1:], targets[1:])
    return [targets[0] / torch.bmm(outer(rest), table.mT), *rest]


def sums_by_view(sums: Tensor, scalings: Sequence[Tensor], summed: Summed = complete) -> list[Tensor]:
    """Return the sums (b, 1, n_l) of every view of a group, from the sums of the group (b, 1, n_1 ⋯ n_j)."""
    if len(scalings) == 1:
        return [sums]
    table = sums.view(sums.shape[0], scalings[0].shape[2], -1)
    rest = sums_by_view(summed(torch.bmm(scalings[0], table)), scalings[1:])
    return [torch.bmm(outer(scalings[1:]), table.mT), *rest]


def sums_of_each(table: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Multiply a table (b, r, n_1 ⋯ n_j) by the scalings (b, 1, n_l) of a group; return its sums over all but one view.

    The sums have shape (b, r, n_l), one tensor for each view l of the group.
    """
    first, *rest = scalings
    if not rest:
        return [table * first]
    (b, r, _), n = table.shape, first.shape[2]
    first_sums = torch.bmm(table.reshape(b, r * n, -1), outer(rest).mT).view(b, r, n)
    without = torch.matmul(first.unsqueeze(1), table.reshape(b, r, n, -1)).squeeze(2)
    return [first_sums.mul_(first), *sums_of_each(without, rest)]


def outer(scalings: Sequence[Tensor]) -> Tensor:
    """Return the outer product as a row: (b, 1, n_1), …, (b, 1, n_j) -> (b, 1, n_1 ⋯ n_j)."""
    out = scalings[0]
    for scaling in scalings[1:]:
        out = torch.bmm(out.mT, scaling).view(out.shape[0], 1, -1)
    return out
