"""Coupling of the dense solver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from m3g.costs import Coupling, Problem
from m3g.costs.coupling import Edge, SquaredMeans
from m3g.solvers.dense.kernel import Kernel
from m3g.solvers.shared.couplings import summed_gradients


class KernelCoupling(Coupling):
    """Coupling P = K ∘ ⊗ exp(log scaling - base), from the kernel K of the last step and its `base` (see `Kernel`).

    K is not recomputed if it is in memory and the scalings are in range (`Kernel.in_range`). The coupling owns the
    kernel: if K is in memory, `rows` overwrites it with P, and `unscaled_rows` may pass it to its caller, who may
    overwrite it. After K was passed to a caller, it is recomputed at the next access.

    Args:
        log_scaling: (b, N).
        scalings: exp(log_scaling - base), k tensors (b, n_l), if already computed.
    """

    def __init__(self, kernel: Kernel, log_scaling: Tensor, scalings: list[Tensor] | None = None):
        self.kernel, self.dtype = kernel, kernel.problem.dtype
        self._log_scaling = log_scaling
        # Not `functools.cached_property`: torch.compile cannot trace its lock (Python < 3.12).
        self._scalings = scalings
        self._pairs: dict[Edge, Tensor] | None = None
        self._is_scaled = False

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.kernel.sizes

    @property
    def scalings(self) -> list[Tensor]:
        """Scalings u_l (b, n_l) with P = K ∘ ⊗u; 1 after `rows` has multiplied K by them."""
        if self._scalings is None:
            self._scalings = self.kernel.scalings(self._log_scaling)
            self.kernel.release_cost()
        return self._scalings

    def unscaled_rows(self) -> tuple[Iterable[tuple[slice, Tensor]], list[Tensor] | None, bool]:
        if self._is_scaled or self.kernel.dtype != self.dtype:
            return self.rows(), None, False
        scalings = self.scalings
        released = self.kernel.release_kernel() if self.kernel.problem.reads_coupling_once else None
        if released is not None:
            return [(self.kernel.own, released)], scalings, True
        return self.kernel.slabs(), scalings, False

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        scalings = self.scalings
        if self.kernel.kept and not self._is_scaled:
            self.kernel.apply_scalings(scalings)
            self._scalings, self._is_scaled = [torch.ones_like(part) for part in scalings], True
        for rows, slab in self.kernel.slabs():
            if not self.kernel.kept:
                slab = self.kernel.scaled(slab, [scalings[0][:, rows], *scalings[1:]], in_place=True)
            yield rows, slab.to(self.dtype)

    def squared_means(self, points: Tensor) -> SquaredMeans:
        computed = self.kernel.log_argument
        return computed if isinstance(computed, SquaredMeans) else super().squared_means(points)

    def marginal(self, l: int) -> Tensor:
        return self.pair(0, 1).sum(2) if l == 0 else self.pair(0, l).sum(1)

    def pair(self, l: int, m: int) -> Tensor:
        if self._pairs is None:
            self._pairs, _ = self.kernel.pairs(self.scalings)
        return self._pairs[l, m].to(self.dtype)

    def exchanged_gradients(self, problem: Problem) -> tuple[Tensor, ...] | None:
        """Return the gradient, summed over the processes that share the solve; None if there is only one process.

        Pair marginals are exchanged here too: an exchange requires all processes, but later only some of them may read
        the pair marginals.
        """
        sharing = self.kernel.sharing
        if sharing is None:
            return None
        self.pair(0, 1)
        return summed_gradients(problem, OwnCoupling(self), sharing, self.kernel.own)


class OwnCoupling(Coupling):
    """Rows of view 0 of a `KernelCoupling` that belong to this process, coupled with all points of the other views."""

    def __init__(self, full: KernelCoupling):
        own = full.kernel.own
        self.full, self.sizes = full, [own.stop - own.start, *full.sizes[1:]]
        self._pairs = full.kernel.own_pairs(full.scalings)[0]

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        start = self.full.kernel.own.start
        for rows, slab in self.full.rows():
            yield slice(rows.start - start, rows.stop - start), slab

    def marginal(self, l: int) -> Tensor:
        return self.pair(0, 1).sum(2) if l == 0 else self.pair(0, l).sum(1)

    def pair(self, l: int, m: int) -> Tensor:
        return self._pairs[l, m].to(self.full.dtype)
