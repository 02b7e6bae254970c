"""Representations of couplings; see `m3g.costs.Coupling` for the interface."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from m3g.costs import Coupling, PairwiseProblem, Problem, along
from m3g.costs.coupling import Edge
from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.processes import Processes

# Maximum size of a slab of the full tensor, except that a slab has at least one row.
SLAB_BYTES = 2**24


def slabs(sizes: Sequence[int], num_batch: int, itemsize: int, within: slice | None = None) -> list[slice]:
    """Return slices of view 0 that divide the full tensor into slabs of at most 16 MiB, or of one row.

    With `within`, the slices cover this range of rows only.
    """
    per_row = num_batch * math.prod(sizes[1:]) * itemsize
    start, stop = (0, sizes[0]) if within is None else (within.start, within.stop)
    step = max(1, min(stop - start, SLAB_BYTES // max(1, per_row)))
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]


def log_slab(cost: Tensor, potentials: Sequence[Tensor], rows: slice, epsilon: float) -> Tensor:
    """Return the exponents (⊕f - C) / eps of a slab of the cost (b, rows, n_2, …), as a new tensor."""
    k = len(potentials)
    out = along(potentials[0][:, rows], (0,), k) - cost
    for l in range(1, k):
        out += along(potentials[l], (l,), k)
    return out.div_(epsilon)


def summed_gradients(
    problem: Problem, local: Coupling, sharing: Processes, rows: slice, *, lead: int = 0
) -> tuple[Tensor, ...]:
    """Return `problem.gradient` of a coupling whose rows of view `lead` are distributed over processes.

    `local` is the coupling restricted to the rows `rows` of this process.
    """
    leaves = [tensor.detach().requires_grad_() for tensor in problem.tensors]
    chosen = [torch.arange(n, device=problem.device) for n in problem.sizes]
    chosen[lead] = chosen[lead][rows]
    with torch.enable_grad():
        selected = problem.with_tensors(leaves).select(chosen)
    # The backward pass of `select` scatters the gradients of the rows of this process into tensors of the full shape.
    gradients = torch.autograd.grad(selected.tensors, leaves, selected.detached().gradient(local))
    flat = sharing.reduced(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = flat.split([leaf.numel() for leaf in leaves])
    return tuple(part.view(leaf.shape) for part, leaf in zip(parts, leaves))


@dataclass
class DenseCoupling(Coupling):
    """Coupling P = exp((⊕f - C) / eps) of a dense cost (b, n_1, …, n_k), computed slab by slab."""

    cost: Tensor
    potentials: list[Tensor]
    epsilon: float

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return list(self.cost.shape[1:])

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        for rows in slabs(self.sizes, self.cost.shape[0], self.cost.element_size()):
            yield rows, log_slab(self.cost[:, rows], self.potentials, rows, self.epsilon).exp_()

    def marginal(self, l: int) -> Tensor:
        return self._sum((l,))

    def pair(self, l: int, m: int) -> Tensor:
        return self._sum((l, m))

    def _sum(self, views: tuple[int, ...]) -> Tensor:
        """Return the marginal on some views: the sum over all others."""
        summed = [l + 1 for l in range(self.cost.ndim - 1) if l not in views]
        slab_sums = [slab.sum(summed) if summed else slab for _, slab in self.rows()]
        return torch.cat(slab_sums, 1) if views[0] == 0 else torch.stack(slab_sums).sum(0)


@dataclass
class PairwiseCoupling(Coupling):
    """Coupling of a pairwise problem, given by its pair marginals. The full tensor is built on demand.

    Attributes:
        log_scaling: (b, N), the log scalings h of the kernels `PairwiseProblem.log_kernels`.
        kernel_dtype: dtype of the log kernels in the solve.
        pairs: pair marginals that have been computed.
        missing: function that computes a pair marginal that is not in `pairs`, and possibly others with it.
    """

    problem: PairwiseProblem
    log_scaling: Tensor
    epsilon: float
    kernel_dtype: torch.dtype
    pairs: dict[Edge, Tensor]
    missing: Callable[[int, int], dict[Edge, Tensor]] = field(repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.problem.sizes

    def marginal(self, l: int) -> Tensor:
        return self.pair(0, 1).sum(2) if l == 0 else self.pair(0, l).sum(1)

    def pair(self, l: int, m: int) -> Tensor:
        if (l, m) not in self.pairs:
            self.pairs.update(self.missing(l, m))
        return self.pairs[l, m].to(self.problem.dtype)

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        problem, wide = self.problem, vector_dtype(self.problem.device)
        matrices = problem.by_edge(problem.log_kernels(self.epsilon, self.kernel_dtype).groups)
        scalings = self.log_scaling.to(wide).split(list(self.sizes), 1)
        for rows in slabs(problem.sizes, problem.num_batch, wide.itemsize):
            shape = (problem.num_batch, rows.stop - rows.start, *problem.sizes[1:])
            exponent = torch.zeros(shape, dtype=wide, device=problem.device)
            for l, part in enumerate(scalings):
                exponent += along(part[:, rows] if l == 0 else part, (l,), problem.k)
            for (l, m), matrix in matrices.items():
                exponent += along(matrix[:, rows] if l == 0 else matrix, (l, m), problem.k)
            yield rows, exponent.exp_().to(problem.dtype)


@dataclass
class RescaledCoupling(Coupling):
    """Coupling `inner`, in `inner_dtype`, multiplied by a factor (b,) per problem and converted to `dtype`."""

    inner: Coupling
    factor: Tensor
    inner_dtype: torch.dtype
    dtype: torch.dtype

    @property
    def sizes(self) -> Sequence[int]:  # type: ignore[override]
        return self.inner.sizes

    @property
    def from_potentials(self) -> bool:  # type: ignore[override]
        return self.inner.from_potentials

    def _scaled(self, tensor: Tensor) -> Tensor:
        return (tensor * self.factor.to(tensor.dtype).reshape([-1] + [1] * (tensor.ndim - 1))).to(self.dtype)

    def marginal(self, l: int) -> Tensor:
        return self._scaled(self.inner.marginal(l))

    def pair(self, l: int, m: int) -> Tensor:
        return self._scaled(self.inner.pair(l, m))

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        for rows, slab in self.inner.rows():
            yield rows, self._scaled(slab)

    def pull(self, points: Tensor) -> Tensor:
        return self._scaled(self.inner.pull(points.to(self.inner_dtype)))

    def product_pull(self, points: Tensor) -> Tensor:
        return self._scaled(self.inner.product_pull(points.to(self.inner_dtype)))

    def weighted_pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
        return self._scaled(self.inner.weighted_pull(points.to(self.inner_dtype), divisor))


@dataclass
class SparseCoupling(Coupling):
    """Coupling with few non-zero entries, such as the solution of a linear program: tuples (s, k) and masses (s,).

    As a function of the cost it is piecewise constant.
    """

    from_potentials = False

    problem: Problem
    tuples: Tensor
    weights: Tensor

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.problem.sizes

    def marginal(self, l: int) -> Tensor:
        out = torch.zeros(1, self.problem.sizes[l], dtype=self.weights.dtype, device=self.weights.device)
        return out.index_add_(1, self.tuples[:, l], self.weights.unsqueeze(0))

    def pair(self, l: int, m: int) -> Tensor:
        n_l, n_m = self.problem.sizes[l], self.problem.sizes[m]
        out = torch.zeros(1, n_l * n_m, dtype=self.weights.dtype, device=self.weights.device)
        out.index_add_(1, self.tuples[:, l] * n_m + self.tuples[:, m], self.weights.unsqueeze(0))
        return out.view(1, n_l, n_m)

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        out = torch.zeros(self.problem.sizes, dtype=self.weights.dtype, device=self.weights.device)
        out.index_put_(tuple(self.tuples.T), self.weights, accumulate=True)
        yield slice(0, self.problem.sizes[0]), out.unsqueeze(0)
