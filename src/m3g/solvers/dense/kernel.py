"""The kernel exp(⊕base - C / eps) of a problem, in memory or recomputed slab by slab."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from m3g.costs import Problem, along
from m3g.costs.contraction import (
    balanced_split,
    concatenated_rows,
    first_pairs,
    outer,
    overwritable,
    pair_marginals,
    row_times,
    scaled_first,
    times_row,
    without_first,
)
from m3g.costs.coupling import Edge
from m3g.solvers.dense.marginals import sums
from m3g.solvers.dense.powers import clamped_, is_fast, power_, range_of_logs
from m3g.solvers.shared.couplings import slabs
from m3g.solvers.shared.processes import processes

# K is recomputed if the log of a product of scalings exceeds this magnitude. Within it, the entries of K that belong to
# entries of P above 3e-22 are not clamped (float32). If no entry of K was clamped, twice this magnitude is allowed.
STRETCH = {torch.float32: 30.0, torch.float64: 300.0}
# K is computed as a power of 2, which is up to three times as fast as a power of e. Exponents are clamped, because sums
# of denormal numbers take ten times as long.
LEAST_EXPONENT = {torch.float32: -115.0, torch.float64: -995.0}
LOG2_E = math.log2(math.e)


class Kernel:
    """Kernel K = exp(⊕base - C / eps), with P = K ∘ ⊗ exp(log scaling - base).

    Attributes:
        base: (b, N), log scalings absorbed in K, in float64 if the device supports it.
        fixed: whether no value may be read on the host.
        sharing: the processes that share the solve; None if there is only one.
        own: the rows of view 0 in K: all, or those of this process if several share a solve.
        kept: whether K is in memory, as one slab of these rows.
        keeps_cost: whether the cost tensor stays in memory besides K, because it is read again or must not be
            overwritten.
        clamped: whether small entries of K may have been clamped.
        log_argument: `Problem.log_argument`, whose power is faster to compute than an exponential of the cost; or None.
        lead: the number of views in the leading group A; the others are group B. A has α tuples, and B has β.
    """

    def __init__(self, problem: Problem, epsilon: float, dtype: torch.dtype, *, kept: bool, fixed: bool = False):
        self.problem, self.epsilon, self.dtype = problem, epsilon, dtype
        self.sizes, self.k = list(problem.sizes), problem.k
        self.kept, self.fixed, self.lead = kept, fixed, balanced_split(self.sizes)
        self.sharing = None if fixed else processes()
        self.own = slice(0, self.sizes[0]) if self.sharing is None else self.sharing.rows(self.sizes[0])
        self.log_argument = problem.log_argument() if kept and not fixed and dtype == problem.dtype else None
        self._argument = None if self.log_argument is None else self.log_argument.slab(self.own)
        self._cost = self._costs() if kept and self._argument is None else None
        self._kernel: Tensor | None = None
        self.base: Tensor | None = None
        self.keeps_cost, self.clamped = fixed or not problem.new_slabs, True

    def _costs(self) -> Tensor:
        """Return the costs of the rows `own`."""
        if self._argument is not None:
            argument, self._argument = self._argument, None
            return clamped_(argument, self.problem.least_argument).log_().mul_(-self.problem.factor)
        return self.problem.dense() if self.sharing is None else self.problem.slab(self.own)

    def _costs_and_memory(self) -> tuple[Tensor, Tensor]:
        """Return the costs of the rows `own` in the dtype of K, and memory for K.

        Without `keeps_cost`, or if the costs were converted to another dtype, K may overwrite the returned costs.
        """
        if not self.keeps_cost:
            self._kernel = None
        cost = self._costs() if self._cost is None else self._cost
        converted = cost if cost.dtype == self.dtype else cost.to(self.dtype)
        self._cost = cost if self.keeps_cost else None
        if converted is self._cost:
            return converted, cost.new_empty(cost.shape) if self._kernel is None else self._kernel
        converted = converted.contiguous()
        return converted, converted

    @property
    def rows(self) -> list[slice]:
        return [self.own] if self.kept else slabs(self.sizes, self.problem.num_batch, self.dtype.itemsize, self.own)

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate the results of all slabs and processes along axis 1, the rows of view 0."""
        own = concatenated_rows(parts)
        if self.sharing is None:
            return own
        by_row = own.reshape(own.shape[0], self.own.stop - self.own.start, -1)
        return self.sharing.joined(by_row, self.sizes[0]).reshape(own.shape[0], -1, *own.shape[2:])

    def _reduced(self, own: Tensor, by: str = "SUM") -> Tensor:
        return own if self.sharing is None else self.sharing.reduced(own, by)

    def costs(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield costs (b, rows, n_2, …, n_k), slab by slab."""
        for rows in self.rows:
            yield rows, self.problem.slab(rows) if self._cost is None else self._cost

    def slabs(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield K (b, rows, n_2, …, n_k), slab by slab."""
        if self._kernel is not None:
            yield self.own, self._kernel
            return
        for rows, cost in self.costs():
            yield rows, self._exponential(cost, rows, None)

    def absorb(self, log_scaling: Tensor) -> None:
        """Absorb these log scalings (b, N) in K."""
        self.base, self.clamped = log_scaling, True
        if self.kept:
            cost, out = self._costs_and_memory()
            self._kernel = self._exponential(cost, self.own, None if self.fixed else out)

    def absorb_lowest(self, lowest: float, like: Tensor) -> None:
        """Absorb the lowest cost, so that entries of K are at most 1; `like` (b, N) has the dtype of the base."""
        self.base, self.clamped = torch.zeros_like(like), False
        self.base[:, : self.sizes[0]] = lowest / self.epsilon
        power = self.problem.factor / self.epsilon
        if self._argument is not None and not self.keeps_cost and is_fast(power):
            argument, self._argument = self._argument.contiguous(), None
            self._kernel = power_(argument, power, math.exp(lowest / self.problem.factor))
        elif self.kept:
            cost, out = self._costs_and_memory()
            shift = cost.new_full((1,), LOG2_E * lowest / self.epsilon)
            self._kernel = torch.add(shift, cost, alpha=-LOG2_E / self.epsilon, out=out).exp2_()

    def _exponential(self, cost: Tensor, rows: slice, out: Tensor | None) -> Tensor:
        assert self.base is not None, "some log scalings were absorbed"
        parts = list((self.base * LOG2_E).to(self.dtype).split(self.sizes, 1))
        parts[0] = parts[0][:, rows]
        first, second = sums(parts[: self.lead]), sums(parts[self.lead :])
        b, alpha = first.shape
        matrix = cost.to(self.dtype).reshape(b, alpha, -1)
        if self.fixed:
            exponent = first.unsqueeze(2) + second.unsqueeze(1) - matrix * (LOG2_E / self.epsilon)
            return exponent.clamp(min=LEAST_EXPONENT[self.dtype]).exp2().view(cost.shape)
        out = torch.empty_like(matrix) if out is None else out.view(b, alpha, -1)
        torch.add(second.unsqueeze(1), matrix, alpha=-LOG2_E / self.epsilon, out=out)
        out.add_(first.unsqueeze(2)).clamp_(min=LEAST_EXPONENT[self.dtype])
        return out.exp2_().view(b, rows.stop - rows.start, *self.sizes[1:])

    def scalings(self, log_scaling: Tensor) -> list[Tensor]:
        """Return u_l (b, n_l) with P = K ∘ ⊗u; K is recomputed if the scalings would exceed the range."""
        if self.base is None or (not self.fixed and self._stretched(log_scaling)):
            self.absorb(log_scaling)
        assert self.base is not None
        return list((log_scaling - self.base).exp().to(self.dtype).split(self.sizes, 1))

    def _stretched(self, log_scaling: Tensor) -> bool:
        assert self.base is not None
        changes = (log_scaling - self.base).split(self.sizes, 1)
        bounds = torch.stack([bound for part in changes for bound in part.aminmax()]).tolist()
        return not self.in_range(sum(bounds[::2]), sum(bounds[1::2]))

    def in_range(self, low: float, high: float) -> bool:
        """Return whether K may be used with scalings whose products have logs between `low` and `high`."""
        limit = STRETCH[self.dtype] * (1 if self.clamped else 2)
        return -limit <= low and high <= limit  # also False for NaN, which the caller detects in the marginals

    def absorb_minima(self, dtype: torch.dtype) -> None:
        """Absorb the result of a Sinkhorn sweep with hard minima: the largest entry of K is then 1 for every point."""
        if not self.kept or self.fixed:
            self.absorb(self._minima(dtype))
            return
        # Two passes per view, in the memory of K, which contains the exponents before the exponential.
        cost, out = self._costs_and_memory()
        exponents = torch.mul(cost, -LOG2_E / self.epsilon, out=out)
        parts = []
        for l in range(self.k):
            least = exponents.amax([a + 1 for a in range(self.k) if a != l]).neg_()
            least = least if l == 0 else self._reduced(least, "MIN")
            exponents += along(least, (l,), self.k)
            parts.append(self._joined([least]) if l == 0 else least)
        self._kernel = exponents.clamp_(min=LEAST_EXPONENT[self.dtype]).exp2_()
        self.base, self.clamped = torch.cat(parts, 1).to(dtype) / LOG2_E, True

    def _minima(self, dtype: torch.dtype) -> Tensor:
        """Return the log scalings (b, N) of `absorb_minima`, slab by slab."""
        b = self.problem.num_batch
        parts = [torch.zeros(b, n, dtype=self.dtype, device=self.problem.device) for n in self.sizes]
        for l in range(self.k):
            minima = []
            for rows, cost in self.costs():
                reduced = cost.to(self.dtype) / self.epsilon
                for m, part in enumerate(parts[:l]):
                    reduced = reduced - along(part[:, rows] if m == 0 else part, (m,), self.k)
                minima.append(reduced.amin([a + 1 for a in range(self.k) if a != l]))
            parts[l] = self._joined(minima) if l == 0 else self._reduced(torch.stack(minima).amin(0), "MIN")
        return torch.cat(parts, 1).to(dtype)

    def lowest_and_highest(self) -> tuple[float, float]:
        """Return the range of the costs."""
        argument = self._argument
        tensors = self.costs() if argument is None else [(self.own, argument)]
        bounds = torch.stack([bound for _, tensor in tensors for bound in tensor.aminmax()])
        if self.sharing is not None:
            bounds = self.sharing.reduced(torch.stack([-bounds[::2].amin(), bounds[1::2].amax()]), "MAX")
            bounds[0].neg_()
        values = bounds.tolist()
        low, high = min(values[::2]), max(values[1::2])
        return (low, high) if argument is None else range_of_logs(argument, low, high, self.problem)

    def lead_sums(self) -> Tensor:
        """Return the sums of K over the tuples of B: (b, 1, α)."""
        b, size = self.problem.num_batch, math.prod(self.sizes[self.lead :])
        if self._kernel is not None and self.sharing is None:
            return self._kernel.view(b, -1, size).sum(2).unsqueeze(1)
        return self.left_sums(torch.ones(b, 1, size, dtype=self.dtype, device=self.problem.device))

    def left_sums(self, right: Tensor) -> Tensor:
        """Return (K u_B)ᵀ (b, 1, α) for the outer product u_B (b, 1, β) of the scalings of B."""
        b, size = right.shape[0], right.shape[2]
        if self._kernel is not None and self.sharing is None:
            return times_row(self._kernel.view(b, -1, size), right)
        parts = [times_row(slab.reshape(b, -1, size), right).mT for _, slab in self.slabs()]
        return self._joined(parts).mT

    def right_sums(self, left: Tensor) -> Tensor:
        """Return u_A K (b, 1, β) for the outer product u_A (b, 1, α) of the scalings of A."""
        b, per_row = left.shape[0], left.shape[2] // self.sizes[0]
        if self._kernel is not None and self.sharing is None:
            return row_times(left, self._kernel.view(b, left.shape[2], -1))
        total: Tensor | None = None
        for rows, slab in self.slabs():
            part = left[:, :, rows.start * per_row : rows.stop * per_row]
            slab_sums = row_times(part, slab.reshape(b, part.shape[2], -1))
            total = slab_sums if total is None else total + slab_sums
        assert total is not None
        return self._reduced(total)

    def pairs(self, scalings: Sequence[Tensor], target: Tensor | None = None) -> tuple[dict[Edge, Tensor], Tensor]:
        """Return all pair marginals of K ∘ ⊗u, and the scaling u of view 0.

        View 0 is first scaled to the marginal `target` (b, n), if given. All results are computed in one pass over the
        slabs, so that each slab is computed only once if K is not in memory.
        """
        pairs, lead = self.own_pairs(scalings, target)
        if self.sharing is None:
            return pairs, lead
        joined = self._joined([torch.cat([lead.unsqueeze(2), *(pairs[0, m] for m in range(1, self.k))], 2)])
        lead, *with_first = joined.split([1, *self.sizes[1:]], 2)
        rest = {edge: pair for edge, pair in pairs.items() if edge[0] > 0}
        if rest:
            flat = self.sharing.reduced(torch.cat([pair.flatten() for pair in rest.values()]))
            parts = flat.split([pair.numel() for pair in rest.values()])
            rest = {edge: part.view(pair.shape) for part, (edge, pair) in zip(parts, rest.items())}
        return {**{(0, m): pair for m, pair in enumerate(with_first, 1)}, **rest}, lead.squeeze(2)

    def own_pairs(self, scalings: Sequence[Tensor], target: Tensor | None = None) -> tuple[dict[Edge, Tensor], Tensor]:
        """Return `pairs` for the rows `own` of view 0 only."""
        leads, with_first = [], []
        tail: Tensor | None = None
        for rows, slab in self.slabs():
            pairs = first_pairs(slab, scalings[1:], range(self.k))
            lead = scalings[0][:, rows]
            if target is not None:
                lead = target[:, rows] / pairs[0, self.k - 1].sum(2)
            leads.append(lead)
            with_first.append(scaled_first(pairs, lead))
            if self.k > 2:
                others = without_first(slab, lead)
                tail = others if tail is None else tail + others
        pairs = {edge: concatenated_rows([part[edge] for part in with_first]) for edge in with_first[0]}
        if tail is not None:
            pairs.update(pair_marginals(tail, scalings[1:], range(1, self.k)))
        return pairs, concatenated_rows(leads)

    def apply_scalings(self, scalings: Sequence[Tensor]) -> None:
        """Multiply K, if it is in memory, by scalings u_l (b, n_l)."""
        if self._kernel is not None:
            scalings = [scalings[0][:, self.own], *scalings[1:]]
            self._kernel = self.scaled(self._kernel, scalings, in_place=not self.fixed)

    def release_kernel(self) -> Tensor | None:
        """Return K, which the caller may overwrite, or None if it is not in memory or may not be overwritten.

        After a release, later slabs are recomputed.
        """
        if self._kernel is None or self.fixed or self.sharing is not None or not overwritable(self._kernel):
            return None
        released, self._kernel, self.kept = self._kernel, None, False
        return released

    def release_cost(self) -> None:
        """Release the cost tensor, which is not read again."""
        self._cost = None

    def scaled(self, slab: Tensor, scalings: Sequence[Tensor], *, in_place: bool) -> Tensor:
        """Return a slab of K times scalings u_l (b, n_l)."""
        first, second = outer(scalings[: self.lead]).unsqueeze(2), outer(scalings[self.lead :]).unsqueeze(1)
        matrix = slab.reshape(first.shape[0], first.shape[1], -1)
        matrix = matrix.mul_(first).mul_(second) if in_place else matrix * first * second
        return matrix.view(slab.shape)
