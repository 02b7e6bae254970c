"""Sinkhorn sweeps, which reach a moderate tolerance with the fewest operations if epsilon is not small.

With L, R and W of contraction.py, u the scalings of the group A, v those of B and w those of the pivot c,

    M = W ∘ (L diag(w) Rᵀ),      P_AB = diag(u) M diag(v),      m_c = w ∘ (uᵀ (L ∘ (W diag(v) R)))

M does not depend on u and v. One matrix product therefore gives M for the updates of all views except the pivot, each a
matrix–vector product, and a second matrix product is needed for the update of the pivot. Two views have no pivot: M is
their kernel, and a sweep is a pair of updates (`sweep_two`).

Vectors are rows (b, 1, n): the sums `s` of a view are its marginal without its own scaling, which is then `wanted / s`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from m3g.costs.coupling import Edge
from m3g.solvers.factored.contraction import FEW_COLUMNS, CompleteContraction, pair_sums, times
from m3g.solvers.shared.processes import read

Summed = Callable[[Tensor], Tensor]

# Upper bounds on the exponent of a tuple: beyond the first, a further sweep is needed before the error is read; beyond
# the second, balanced kernels are a better start for Newton steps.
FLAT_REACH, SWEPT_REACH = 6.0, 60.0
# Sweeps before the error is first read: for small problems, for large ones, and the number of tuples from which a
# problem is large, so that reading the error is cheap compared with a sweep.
SWEEPS, LONG_SWEEPS = 3, 2
LONG = 2**20
# Expected decrease of the error per sweep, before it has been observed.
USUAL_RATE, USUAL_RATE_OF_TWO = 0.1, 0.3


def complete(tensor: Tensor) -> Tensor:
    """Return the tensor unchanged: on a single process every sum is complete."""
    return tensor


class Pivot:
    """Part of a sweep that involves the pivot: its two matrix products, whose results the next sweep overwrites.

    Attributes:
        sums: (b, 1, n_c), the current sums of the pivot; `sums_used` are those from which M was computed.
        with_pivot: L ∘ (W diag(v) R) (b, α, n_c).
    """

    sums_used: Tensor
    with_pivot: Tensor | None = None
    _near: Tensor | None = None

    def __init__(self, contraction: CompleteContraction, between: Tensor, wanted: Tensor):
        self._joint: Tensor | None = contraction.joint_buffer
        self._far: Tensor | None = None if contraction.scaled_buffer is None else contraction.scaled_buffer.mT
        self.left, self.across, self.between, self.wanted = contraction.left, contraction.right.mT, between, wanted
        self._start = self.left * wanted
        few = self.left.shape[2] < min(self.left.shape[1], 2 * FEW_COLUMNS)
        self._left_rows = self.left.mT.contiguous() if few else None
        self._summed = contraction.summed
        # The initial sums do not include the kernels between A and B.
        self.sums = self._summed(self.left.sum(1, keepdim=True)).mul_(contraction.right.sum(1, keepdim=True))

    def joint(self) -> Tensor:
        """Return M (b, α, β) after the update of w."""
        self.sums_used = self.sums
        self._near = torch.div(self._start, self.sums, out=self._near)
        joint = torch.bmm(self._near, self.across, out=self._joint).mul_(self.between)
        self._joint = joint
        return joint

    def update_sums(self, left: Tensor, right: Tensor) -> None:
        """Compute the sums for scalings u (b, 1, α) and v (b, 1, β)."""
        far = torch.mul(self.across, right, out=self._far)
        self._far = far
        if self._left_rows is None:
            self.with_pivot = torch.bmm(self.between, far.mT, out=self.with_pivot).mul_(self.left)
        else:  # as in `times`, in the memory of the last sweep
            rows = None if self.with_pivot is None else self.with_pivot.mT
            self.with_pivot = torch.bmm(far, self.between.mT, out=rows).mul_(self._left_rows).mT
        self.sums = self._summed(torch.bmm(left, self.with_pivot))

    @property
    def scaling(self) -> Tensor:
        """Return w (b, 1, n_c), with which M was computed."""
        return self.wanted / self.sums_used

    def pairs(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the joint marginals of A and the pivot and of B and the pivot, with one more matrix product."""
        assert self.with_pivot is not None, "at least one sweep precedes"
        scaling, column = self.scaling, left.mT
        pulled = times(self.between.mT, self.left * column).mul_(self.across.mT).mul_(right.mT)
        return (self.with_pivot * column).mul_(scaling), pulled.mul_(scaling)


class Swept(NamedTuple):
    """Result of the sweeps.

    Attributes:
        joint: M (b, α, β).
        parts_a, parts_b: scalings (b, 1, n_l) of the views of A and B.
        left, right: their outer products, (b, 1, α) and (b, 1, β).
        pivot: None for two views.
        scalings: of all views, concatenated (b, 1, N).
        error: (b,); `worst` is its maximum over the batch.
    """

    contraction: CompleteContraction
    joint: Tensor
    parts_a: Sequence[Tensor]
    parts_b: Sequence[Tensor]
    left: Tensor
    right: Tensor
    pivot: Pivot | None
    scalings: Tensor
    error: Tensor
    worst: float
    num_steps: int

    def log_scaling(self) -> Tensor:
        return self.scalings.log().squeeze(1)

    def pairs(self) -> dict[Edge, Tensor]:
        """Return all pair marginals of this process's slab; for four or more views by products of M with vectors."""
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
    """Sweep towards the marginals `target` (b, N) until they are within `tol`, or Newton steps would be faster.

    The marginal of the leading view is exact at the end, because it is scaled last.
    """
    c = contraction
    if c.pivot is None or c.between is None:
        return sweep_two(c, target, tol=tol, reach=reach, max_steps=max_steps)
    target = target.unsqueeze(1)
    wanted = torch.split_with_sizes(target if c.shard is None else c.shard.own(target), c.sizes, 2)
    wanted_a, wanted_b = [wanted[l] for l in c.group_a], [wanted[m] for m in c.group_b]
    pivot = Pivot(c, c.between, wanted[c.pivot])
    joint = pivot.joint()
    transposed = joint.mT
    parts_a, parts_b = wanted_a, wanted_b
    parts_a = updated(torch.bmm(outer(parts_b), transposed), parts_a, wanted_a, c.summed)
    left = outer(parts_a)
    most = LONG_SWEEPS if target.shape[0] * c.num_tuples > LONG else SWEEPS
    views = [*c.group_a, *c.group_b, c.pivot]
    places = [views.index(l) for l in range(len(views))]
    num_steps, chunk = 0, min(most, 1 + int(reach / FLAT_REACH), max_steps)
    worst, rate = math.inf, USUAL_RATE
    while True:
        for remaining in range(chunk - 1, -1, -1):
            if num_steps > 0:
                pivot.joint()
            # Updates of several views of a group interfere, so they are repeated in the last sweep.
            for _ in range(2 if remaining == 0 and len(wanted_b) > 1 else 1):
                parts_b = updated(c.summed(torch.bmm(left, joint)), parts_b, wanted_b)
                right = outer(parts_b)
                sums_a = torch.bmm(right, transposed)
                parts_a = updated(sums_a, parts_a, wanted_a, c.summed)
                left = outer(parts_a)
            pivot.update_sums(left, right)
            num_steps += 1
        sums_b = c.summed(torch.bmm(left, joint))
        sums = [*sums_by_view(sums_a, parts_a, c.summed), *sums_by_view(sums_b, parts_b), pivot.sums]
        by_group = [*parts_a, *parts_b, pivot.scaling]
        scalings, marginals = (torch.cat([each[i] for i in places], 2) for each in (by_group, sums))
        if c.shard is not None:
            scalings, marginals = c.shard.joined(torch.cat([scalings, marginals], 1)).split(1, 1)
        residual = torch.addcmul(target, marginals, scalings, value=-1)
        before = worst
        error, worst = _errors(residual)
        rate = rate if before == math.inf else worst / before
        # Newton steps are faster than two further sweeps. The second condition also holds for NaN.
        if worst <= tol or not worst * rate <= tol or num_steps >= max_steps:
            return Swept(c, joint, parts_a, parts_b, left, right, pivot, scalings, error, worst, num_steps)
        chunk = 1


def sweep_two(contraction: CompleteContraction, target: Tensor, *, tol: float, reach: float, max_steps: int) -> Swept:
    """Sweep for two views: one sweep scales view 1 and then view 0.

    The initial u = a / √(K b) is half a step in logarithms: a full step, which balances only the rows, overshoots if
    both views contribute to the sums, and two more sweeps would be needed.
    """
    kernel = contraction.kernels[0, 1]
    transposed = kernel.mT
    shard, summed = contraction.shard, contraction.summed
    target = (target if shard is None else shard.own(target)).unsqueeze(1)
    wanted_a, wanted_b = torch.split_with_sizes(target, contraction.sizes, 2)
    left = torch.bmm(wanted_b, transposed).rsqrt_().mul_(wanted_a)
    sums = summed(torch.bmm(left, kernel))
    num_steps, chunk = 0, min(2 * min(SWEEPS, 1 + int(reach / FLAT_REACH)), max_steps)
    worst, rate = math.inf, USUAL_RATE_OF_TWO
    while True:
        for _ in range(chunk):
            right = wanted_b / sums
            left = wanted_a / torch.bmm(right, transposed)
            sums = summed(torch.bmm(left, kernel))
        num_steps += chunk
        before = worst
        error, worst = _errors(torch.addcmul(wanted_b, sums, right, value=-1))
        rate = rate if before == math.inf else (worst / before) ** (1 / chunk)
        chunk = 1 if worst * rate <= tol else 2
        if worst <= tol or not worst * rate**2 <= tol or num_steps + chunk > max_steps:
            scalings = torch.cat([left, right], 2)
            scalings = scalings if shard is None else shard.joined(scalings)
            return Swept(contraction, kernel, [left], [right], left, right, None, scalings, error, worst, num_steps)


def _errors(residual: Tensor) -> tuple[Tensor, float]:
    """Return the error (b,) of a residual (b, 1, N), and the largest of the batch."""
    error = torch.linalg.vector_norm(residual, ord=1, dim=(1, 2))
    return error, read(error)


def updated(
    sums: Tensor, scalings: Sequence[Tensor], wanted: Sequence[Tensor], summed: Summed = complete
) -> list[Tensor]:
    """Return the scalings (b, 1, n) of a group after a sweep over its views, the last first.

    `sums` (b, 1, n_1 ⋯ n_j) is the joint marginal of the group without these scalings, `wanted` are the marginals.
    `summed` completes a sum over the first view if this process has only some of its rows.
    """
    if len(wanted) == 1:
        return [wanted[0] / sums]
    table = sums.view(sums.shape[0], wanted[0].shape[2], -1)
    rest = updated(summed(torch.bmm(scalings[0], table)), scalings[1:], wanted[1:])
    return [wanted[0] / torch.bmm(outer(rest), table.mT), *rest]


def sums_by_view(sums: Tensor, scalings: Sequence[Tensor], summed: Summed = complete) -> list[Tensor]:
    """Return the sums (b, 1, n) of every view of a group, from those of the group (b, 1, n_1 ⋯ n_j)."""
    if len(scalings) == 1:
        return [sums]
    table = sums.view(sums.shape[0], scalings[0].shape[2], -1)
    rest = sums_by_view(summed(torch.bmm(scalings[0], table)), scalings[1:])
    return [torch.bmm(outer(scalings[1:]), table.mT), *rest]


def sums_of_each(table: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Return, for each view of a group, the scaled table (b, r, n_1 ⋯ n_j) summed over the other views: (b, r, n_l).

    `scalings` (b, 1, n_l) are those of all views of the group.
    """
    first, *rest = scalings
    if not rest:
        return [table * first]
    (b, r, _), n = table.shape, first.shape[2]
    first_sums = torch.bmm(table.reshape(b, r * n, -1), outer(rest).mT).view(b, r, n)
    without = torch.matmul(first.unsqueeze(1), table.reshape(b, r, n, -1)).squeeze(2)
    return [first_sums.mul_(first), *sums_of_each(without, rest)]


def outer(scalings: Sequence[Tensor]) -> Tensor:
    """(b, 1, n_1), …, (b, 1, n_j) -> (b, 1, n_1 ⋯ n_j)."""
    out = scalings[0]
    for scaling in scalings[1:]:
        out = torch.bmm(out.mT, scaling).view(out.shape[0], 1, -1)
    return out
