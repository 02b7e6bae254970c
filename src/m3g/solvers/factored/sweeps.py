"""Sinkhorn sweeps, which reach a moderate tolerance with the fewest operations where epsilon is not small.

With L, R and W of contraction.py, u the scalings of the group A, v those of B and w those of the pivot c,

    M = W ∘ (L diag(w) Rᵀ),      P_AB = diag(u) M diag(v),      m_c = w ∘ (uᵀ (L ∘ (W diag(v) R)))

M does not depend on u and v, so one matrix product serves the updates of all views but the pivot, which are products
of M with a vector, and a second one serves that of the pivot. Two views have no pivot: M is their kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from m3g.costs.coupling import Edge
from m3g.solvers.factored.contraction import CompleteContraction

# Bounds on the exponent of a tuple: that from which on a further sweep is needed before the error is read, and that
# past which balanced kernels are the better start of Newton steps.
FLAT_REACH, SWEPT_REACH = 6.0, 60.0
# Sweeps before the error is first read, and those where a sweep is long beside that read, which is from this many
# tuples on.
SWEEPS, LONG_SWEEPS = 3, 2
LONG = 2**20
# By how much a sweep is expected to lower the error, where that has not been seen yet.
USUAL_RATE = 0.1


class Pivot:
    """What a sweep does with the pivot: its two matrix products, whose results the next sweep overwrites.

    Attributes:
        scaling: w (b, 1, n_c).
        sums: m_c / w (b, 1, n_c).
        with_pivot: L ∘ (W diag(v) R) (b, α, n_c).
    """

    scaling: Tensor
    with_pivot: Tensor | None = None
    _near: Tensor | None = None
    _far: Tensor | None = None
    _joint: Tensor | None = None

    def __init__(self, contraction: CompleteContraction, between: Tensor, wanted: Tensor):
        self.left, self.right, self.between, self.wanted = contraction.left, contraction.right, between, wanted
        self._across = self.right.mT
        # A first guess, as if there were no kernels between A and B.
        self.sums = self.left.sum(1, keepdim=True).mul_(self.right.sum(1, keepdim=True))

    def joint(self) -> Tensor:
        """M (b, α, β), after the update of w."""
        self.scaling = self.wanted / self.sums
        self._near = torch.mul(self.left, self.scaling, out=self._near)
        self._joint = torch.bmm(self._near, self._across, out=self._joint).mul_(self.between)
        return self._joint

    def meet(self, left: Tensor, right: Tensor) -> None:
        """The sums, for scalings u (b, α, 1) and v (b, β, 1)."""
        self._far = torch.mul(self.right, right, out=self._far)
        self.with_pivot = torch.bmm(self.between, self._far, out=self.with_pivot).mul_(self.left)
        self.sums = torch.bmm(left.mT, self.with_pivot)

    def pairs(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """The joint marginals of A and the pivot and of B and the pivot: one more matrix product."""
        assert self.with_pivot is not None, "some sweep was made"
        pulled = torch.bmm(self.between.mT, self.left * left).mul_(self.right).mul_(right)
        return (self.with_pivot * left).mul_(self.scaling), pulled.mul_(self.scaling)


class Swept(NamedTuple):
    """Where the sweeps ended.

    Attributes:
        joint: M (b, α, β).
        left, right: scalings of the groups A (b, α, 1) and B (b, β, 1), outer products where these have several views.
        pivot: None for two views.
        scalings: of every view, (b, n_l, 1).
        error: (b,), and the largest of the batch `worst`.
    """

    contraction: CompleteContraction
    joint: Tensor
    left: Tensor
    right: Tensor
    pivot: Pivot | None
    scalings: list[Tensor]
    error: Tensor
    worst: float
    num_steps: int

    def log_scaling(self) -> Tensor:
        return torch.cat(self.scalings, 1).log_().squeeze(-1)

    def pairs(self) -> dict[Edge, Tensor]:
        """All pair marginals."""
        joint = (self.joint * self.left).mul_(self.right.mT)
        if self.pivot is None:
            return {(0, 1): joint}
        return self.contraction.pairs(joint, *self.pivot.pairs(self.left, self.right))


def sweep(contraction: CompleteContraction, target: Tensor, *, tol: float, reach: float, max_steps: int) -> Swept:
    """Sweeps towards the marginals `target` (b, N) until they are within `tol`, or Newton steps would be quicker.

    That of the leading view is right in the end, since it is scaled last.
    """
    c = contraction
    columns = torch.split_with_sizes(target.unsqueeze(-1), c.sizes, 1)
    wanted_a, wanted_b = [columns[l] for l in c.group_a], [columns[m] for m in c.group_b]
    pivot = None if c.pivot is None or c.between is None else Pivot(c, c.between, columns[c.pivot].mT)
    joint = c.kernels[0, 1] if pivot is None else pivot.joint()
    transposed = joint.mT
    parts_a, parts_b = updated(joint.sum(2, keepdim=True), wanted_a, wanted_a), wanted_b
    left = outer(parts_a)
    most = LONG_SWEEPS if target.shape[0] * math.prod(c.sizes) > LONG else SWEEPS
    num_steps, chunk = 0, min(most, 1 + int(reach / FLAT_REACH), max_steps)
    worst, rate = math.inf, USUAL_RATE
    while True:
        for following in range(chunk - 1, -1, -1):
            if pivot is not None and num_steps > 0:
                pivot.joint()
            # With two views that is all there is to do; several views of a group disturb each other.
            for _ in range(2 if pivot is None or (following == 0 and len(wanted_b) > 1) else 1):
                parts_b = updated(torch.bmm(transposed, left), parts_b, wanted_b)
                right = outer(parts_b)
                sums_a = torch.bmm(joint, right)
                parts_a = updated(sums_a, parts_a, wanted_a)
                left = outer(parts_a)
            if pivot is not None:
                pivot.meet(left, right)
            num_steps += 1
        error = distance(torch.bmm(transposed, left).mul_(right), wanted_b)
        if len(parts_a) > 1:  # else the last update has made it right
            error = error + distance(sums_a * left, wanted_a)
        if pivot is not None:
            error = error + distance(pivot.sums * pivot.scaling, [pivot.wanted])
        before, worst = worst, error.item() if error.numel() == 1 else error.max().item()
        rate = rate if before == math.inf else worst / before
        # Newton steps are quicker than more than one sweep; and a number that is not one ends here.
        if worst <= tol or not worst * rate <= tol or num_steps >= max_steps:
            break
        chunk = 1
    views = dict(zip((*c.group_a, *c.group_b), (*parts_a, *parts_b)))
    if pivot is not None and c.pivot is not None:
        views[c.pivot] = pivot.scaling.mT
    scalings = [views[l] for l in range(len(c.sizes))]
    return Swept(c, joint, left, right, pivot, scalings, error, worst, num_steps)


def updated(sums: Tensor, scalings: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor]:
    """The scalings (b, n, 1) of a group after a sweep over its views, the last first.

    `sums` (b, n_1 ⋯ n_j, 1) is the joint marginal of the group without these scalings, `wanted` are the marginals.
    """
    if len(wanted) == 1:
        return [wanted[0] / sums]
    table = sums.view(sums.shape[0], wanted[0].shape[1], -1)
    rest = updated(torch.bmm(table.mT, scalings[0]), scalings[1:], wanted[1:])
    return [wanted[0] / torch.bmm(table, outer(rest)), *rest]


def outer(scalings: Sequence[Tensor]) -> Tensor:
    """(b, n_1, 1), …, (b, n_j, 1) -> (b, n_1 ⋯ n_j, 1)."""
    out = scalings[0]
    for scaling in scalings[1:]:
        out = torch.bmm(out, scaling.mT).view(out.shape[0], -1, 1)
    return out


def distance(marginal: Tensor, wanted: Sequence[Tensor]) -> Tensor:
    """Σ_l |m_l - a_l|_1 (b,) over the views of a group, from their joint marginal (b, n_1 ⋯ n_j, 1)."""
    if len(wanted) == 1:
        return torch.linalg.vector_norm(marginal - wanted[0], ord=1, dim=(1, 2))
    table = marginal.view(marginal.shape[0], wanted[0].shape[1], -1)
    return distance(table.sum(2, keepdim=True), wanted[:1]) + distance(table.sum(1).unsqueeze(-1), wanted[1:])
