"""The kernel exp(⊕base - C / eps) of a problem, kept in memory or computed anew slab by slab."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from m3g.costs import Problem, along
from m3g.costs.contraction import balanced_split, first_pairs, outer, pair_marginals, without_first
from m3g.costs.coupling import Edge
from m3g.solvers.shared.couplings import slabs

# Sum over the views of the largest change of a log scaling after which the kernel is computed anew. Entries of P above
# 1e-25 then have a kernel within the range of float32.
STRETCH = {torch.float32: 30.0, torch.float64: 300.0}
# Exponents are clamped here, because exponentials that underflow take ten times as long.
LEAST_EXPONENT = {torch.float32: -80.0, torch.float64: -690.0}


class Kernel:
    """K = exp(⊕base - C / eps), of which P = K ∘ ⊗ exp(log scaling - base).

    Attributes:
        base: (b, N), log scalings that K holds, in float64 where there is one.
        kept: whether K is in memory; then it is one slab of all rows.
        lead: the number of views in the leading group A; the others are B.
    """

    def __init__(self, problem: Problem, epsilon: float, dtype: torch.dtype, *, kept: bool, fixed: bool = False):
        self.problem, self.epsilon, self.dtype = problem, epsilon, dtype
        self.sizes, self.k = list(problem.sizes), problem.k
        self.kept, self.fixed = kept, fixed
        self.lead = balanced_split(self.sizes)
        self._cost: Tensor | None = problem.dense() if kept else None
        self._kernel: Tensor | None = None
        self.base: Tensor | None = None

    @property
    def rows(self) -> list[slice]:
        if self.kept:
            return [slice(0, self.sizes[0])]
        return slabs(self.sizes, self.problem.num_batch, self.dtype.itemsize)

    def costs(self) -> Iterator[tuple[slice, Tensor]]:
        """Costs (b, rows, n_2, …, n_k), slab by slab."""
        for rows in self.rows:
            yield rows, self.problem.slab(rows) if self._cost is None else self._cost

    def slabs(self) -> Iterator[tuple[slice, Tensor]]:
        """K (b, rows, n_2, …, n_k), slab by slab."""
        if self._kernel is not None:
            yield slice(0, self.sizes[0]), self._kernel
            return
        for rows, cost in self.costs():
            yield rows, self._exponential(cost, rows, None)

    def absorb(self, log_scaling: Tensor) -> None:
        """Let K hold these log scalings (b, N)."""
        self.base = log_scaling
        if self._cost is not None:
            out = None if self.fixed else self._kernel
            self._kernel = self._exponential(self._cost, slice(0, self.sizes[0]), out)

    def _exponential(self, cost: Tensor, rows: slice, out: Tensor | None) -> Tensor:
        assert self.base is not None, "some log scalings were absorbed"
        parts = [part.to(self.dtype) for part in self.base.split(self.sizes, 1)]
        parts[0] = parts[0][:, rows]
        first, second = sums(parts[: self.lead]), sums(parts[self.lead :])
        b, alpha = first.shape
        if cost.dtype != self.dtype:
            cost = cost.to(self.dtype)
        matrix = cost.reshape(b, alpha, -1)
        if self.fixed:
            exponent = first.unsqueeze(2) + second.unsqueeze(1) - matrix / self.epsilon
            return exponent.clamp(min=LEAST_EXPONENT[self.dtype]).exp().view(cost.shape)
        out = torch.empty_like(matrix) if out is None else out.view(b, alpha, -1)
        torch.add(second.unsqueeze(1), matrix, alpha=-1 / self.epsilon, out=out)
        out.add_(first.unsqueeze(2)).clamp_(min=LEAST_EXPONENT[self.dtype])
        return out.exp_().view(b, rows.stop - rows.start, *self.sizes[1:])

    def scalings(self, log_scaling: Tensor) -> list[Tensor]:
        """u_l (b, n_l) with P = K ∘ ⊗u; K is computed anew where they would leave the range."""
        if self.base is None or (not self.fixed and self._stretched(log_scaling)):
            self.absorb(log_scaling)
        assert self.base is not None
        return list((log_scaling - self.base).exp().to(self.dtype).split(self.sizes, 1))

    def _stretched(self, log_scaling: Tensor) -> bool:
        assert self.base is not None
        change = (log_scaling - self.base).abs().split(self.sizes, 1)
        # Also where a scaling is not a number, which the caller will find in the marginals.
        return not float(torch.stack([part.amax() for part in change]).sum()) <= STRETCH[self.dtype]

    def hard_base(self, log_target: Tensor) -> Tensor:
        """Log scalings (b, N) for which every point has a tuple with an entry of 1 in K, and none has a larger one.

        That is Sinkhorn with minima in place of soft ones. Up to a constant the weights are then those of the points.
        """
        b = self.problem.num_batch
        if self._cost is not None and not self.fixed:
            return self._hard_base_in_place(self._cost).to(log_target.dtype)
        parts = [torch.zeros(b, n, dtype=self.dtype, device=log_target.device) for n in self.sizes]
        for l in range(self.k):
            found = []
            for rows, cost in self.costs():
                left = cost.to(self.dtype) / self.epsilon
                for m, part in enumerate(parts[:l]):
                    left = left - along(part[:, rows] if m == 0 else part, (m,), self.k)
                gone = [a + 1 for a in range(self.k) if a != l]
                found.append(left.amin(gone))
            parts[l] = torch.cat(found, 1) if l == 0 else torch.stack(found).amin(0)
        return torch.cat(parts, 1).to(log_target.dtype)

    def _hard_base_in_place(self, cost: Tensor) -> Tensor:
        """The same with two passes for each view, in the memory that K will take."""
        left = (cost if cost.dtype == self.dtype else cost.to(self.dtype)) / self.epsilon
        parts = []
        for l in range(self.k):
            parts.append(left.amin([a + 1 for a in range(self.k) if a != l]))
            left -= along(parts[l], (l,), self.k)
        self._kernel = left
        return torch.cat(parts, 1)

    def lowest_and_highest(self) -> tuple[float, float]:
        """The range of the costs."""
        bounds = [cost.aminmax() for _, cost in self.costs()]
        return min(float(low) for low, _ in bounds), max(float(high) for _, high in bounds)

    def left_sums(self, right: Tensor) -> Tensor:
        """K u_B for the product u_B (b, β) of the scalings of B: (b, α)."""
        b, column = right.shape[0], right.unsqueeze(2)
        found = [torch.bmm(slab.reshape(b, -1, right.shape[1]), column).squeeze(2) for _, slab in self.slabs()]
        return found[0] if len(found) == 1 else torch.cat(found, 1)

    def right_sums(self, left: Tensor) -> Tensor:
        """u_Aᵀ K for the product u_A (b, α) of the scalings of A: (b, β)."""
        b, per_row = left.shape[0], left.shape[1] // self.sizes[0]
        total: Tensor | None = None
        for rows, slab in self.slabs():
            part = left[:, rows.start * per_row : rows.stop * per_row].unsqueeze(1)
            found = torch.bmm(part, slab.reshape(b, part.shape[2], -1)).squeeze(1)
            total = found if total is None else total + found
        assert total is not None
        return total

    def pairs(self, scalings: Sequence[Tensor], wanted: Tensor | None = None) -> tuple[dict[Edge, Tensor], Tensor]:
        """All pair marginals of K ∘ ⊗u, and u of view 0, which is first scaled to a marginal `wanted` (b, n) if given.

        One pass over the slabs serves all, so that each is computed once where K is not in memory.
        """
        leads, of_first = [], []
        tail: Tensor | None = None
        rest = outer(scalings[1:]).unsqueeze(2)
        for rows, slab in self.slabs():
            lead = scalings[0][:, rows]
            if wanted is not None:
                lead = wanted[:, rows] / torch.bmm(slab.flatten(2), rest).squeeze(2)
            leads.append(lead)
            of_first.append(first_pairs(slab, [lead, *scalings[1:]], range(self.k)))
            if self.k > 2:
                found = without_first(slab, lead)
                tail = found if tail is None else tail + found
        pairs = {edge: torch.cat([part[edge] for part in of_first], 1) for edge in of_first[0]}
        if tail is not None:
            pairs.update(pair_marginals(tail, scalings[1:], range(1, self.k)))
        return pairs, torch.cat(leads, 1)

    def settle(self, scalings: Sequence[Tensor]) -> None:
        """Multiply K, where it is kept, by scalings u_l (b, n_l), and give back the memory of the cost tensor."""
        if self._kernel is not None:
            self._kernel, self._cost = self.scaled(self._kernel, scalings, in_place=not self.fixed), None

    def scaled(self, slab: Tensor, scalings: Sequence[Tensor], *, in_place: bool) -> Tensor:
        """A slab of K times scalings u_l (b, n_l)."""
        first, second = outer(scalings[: self.lead]).unsqueeze(2), outer(scalings[self.lead :]).unsqueeze(1)
        matrix = slab.reshape(first.shape[0], first.shape[1], -1)
        matrix = matrix.mul_(first).mul_(second) if in_place else matrix * first * second
        return matrix.view(slab.shape)


def sums(parts: Sequence[Tensor]) -> Tensor:
    """(b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j): u_1 ⊕ … ⊕ u_j."""
    out = parts[0]
    for part in parts[1:]:
        out = (out.unsqueeze(2) + part.unsqueeze(1)).flatten(1)
    return out
