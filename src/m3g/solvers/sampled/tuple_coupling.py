"""Coupling of a weighted list of tuples (tuple_kernel.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g.costs.multilinear import products_without_each
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.interfaces import SampledCoupling
from m3g.solvers.sampled.log_kernel import squared_sums
from m3g.solvers.sampled.recomputed_rows import (
    draw_from_chunk,
    gather_rows,
    row_chunks,
    systematic_draws,
    transposed_times,
)

if TYPE_CHECKING:
    from m3g.solvers.sampled.tuple_kernel import TupleList


@dataclass
class Chunk:
    """Some rows of a block of a coupling: entry (s, i) is row[s] · table[s, i] · column[i].

    If `tilt`, a factor per row and one per column, is given, the entry is also multiplied by the sum of the two.
    """

    rows: slice
    table: Tensor  # (b, s, n)
    row: Tensor  # (b, s, 1)
    column: Tensor  # (b, n, 1)
    sums: Tensor | None  # table @ column, if available
    tilt: tuple[Tensor, Tensor] | None

    def times(self, matrix: Tensor | None = None) -> Tensor:
        """Return entries @ matrix: (b, n, d) -> (b, s, d); None means a column of ones."""
        scaled = self.column if matrix is None else self.column * matrix
        plain = self.sums if matrix is None and self.sums is not None else torch.bmm(self.table, scaled)
        if self.tilt is None:
            return self.row * plain
        return self.row * (self.tilt[0] * plain + torch.bmm(self.table, self.tilt[1] * scaled))

    def transposed_times(self, matrix: Tensor | None = None) -> Tensor:
        """Return entriesᵀ @ matrix: (b, s, d) -> (b, n, d); None means a column of ones."""
        scaled = self.row if matrix is None else self.row * matrix
        if self.tilt is None:
            return self.column * transposed_times(self.table, scaled)
        both = transposed_times(self.table, torch.cat([self.tilt[0] * scaled, scaled], 2))
        tilted, plain = both.chunk(2, 2)
        return self.column * (tilted + self.tilt[1] * plain)

    def entries(self) -> Tensor:
        """Return all entries: (b, s, n)."""
        out = (self.table * self.row).mul_(self.column.transpose(1, 2))
        return out if self.tilt is None else out.mul_(self.tilt[0] + self.tilt[1].transpose(1, 2))

    def weighted(self, factors: Tensor) -> Chunk:
        """Return the chunk with every entry multiplied by a factor; the factors (b, s, n) are overwritten."""
        return replace(self, table=factors.mul_(self.table), sums=None)


@dataclass
class TupleCoupling(SampledCoupling):
    """Coupling of a `TupleList`; see `m3g.costs.Coupling` for the interface.

    Entry (s, i) of a block is row_scales[s] · table[s, i] · column_scales[i]. If `tilt`, a factor per row and one per
    column of each block, is given, the entry is also multiplied by the sum of the two. The result is a signed measure:
    the derivative of a coupling.

    Attributes:
        row_scales: one tensor (b, s) per block.
        column_scales: one tensor (b, n_l) per block.
        row_sums: one tensor (b, s) per block, table @ column_scales.
        tilt: row factors (b, s) and column factors (b, n_l), one tensor of each per block.
    """

    kernel: TupleList
    row_scales: list[Tensor]
    column_scales: list[Tensor]
    row_sums: list[Tensor]
    log_factor: Tensor
    tilt: tuple[list[Tensor], list[Tensor]] | None = None

    dense_pairs = True

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.kernel.sizes

    def _chunks(self, block_index: int, *, numbers: int = 0) -> Iterator[Chunk]:
        """Yield a block in chunks of rows, small enough for computations with `numbers` temporary numbers per row."""
        column = self.column_scales[block_index].unsqueeze(2)
        tables = self.kernel.tables[block_index]
        row_bytes = numbers * column.shape[0] * column.element_size()
        for rows, (table, _) in row_chunks(tables, row_bytes) if numbers else tables:
            row, sums = (
                self.row_scales[block_index][:, rows].unsqueeze(2),
                self.row_sums[block_index][:, rows].unsqueeze(2),
            )
            tilt = None
            if self.tilt is not None:
                tilt = (self.tilt[0][block_index][:, rows].unsqueeze(2), self.tilt[1][block_index].unsqueeze(2))
            yield Chunk(rows, table, row, column, sums, tilt)

    def marginals(self) -> Tensor:
        """Return all marginals, concatenated: (b, N), in the dtype of the log scalings."""
        kernel = self.kernel
        out = torch.zeros_like(kernel.base)
        for block_index, block in enumerate(kernel.blocks):
            open_out = kernel.part(out, block.l)
            for chunk in self._chunks(block_index):
                add_at(out, chunk.times().squeeze(2), block.columns[:, chunk.rows])
                open_out += chunk.transposed_times().squeeze(2)
        return self._summed(out)

    def _summed(self, local: Tensor) -> Tensor:
        """Return the sum over the rows of all processes, given the sum over the rows of this process."""
        return self.kernel.tables[0].summed(local)

    def _row_masses(self, block_index: int) -> Tensor:
        """Return the mass of every row (b, s), in the dtype of the log scalings."""
        if self.tilt is None:
            return (self.row_scales[block_index] * self.row_sums[block_index]).to(self.kernel.base.dtype)
        masses = self.kernel.tables[block_index].joined([chunk.times() for chunk in self._chunks(block_index)])
        return masses.squeeze(2).to(self.kernel.base.dtype)

    def sample_weights(self) -> Tensor:
        """Return the mass of every sample, summed over its rows in all blocks: (b, number of samples)."""
        return torch.stack(
            [
                self._row_masses(block_index)[:, block.num_exact :]
                for block_index, block in enumerate(self.kernel.blocks)
            ]
        ).sum(0)

    def directional_derivative(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> TupleCoupling:
        kernel, dtype = self.kernel, self.row_scales[0].dtype
        rows, columns = [], []
        for block_index, block in enumerate(kernel.blocks):
            fixed = gather_rows(log_change, block.columns).sum(-1)
            rows.append((fixed if row_factors is None else fixed + row_factors[block_index]).to(dtype))
            columns.append(kernel.part(log_change, block.l).to(dtype))
        return replace(self, tilt=(rows, columns))

    def marginal(self, l: int) -> Tensor:
        return self.kernel.part(self.marginals(), l).to(self.row_scales[0].dtype)

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs([(l, m)])[l, m]

    def pairs(self, edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        """Return the pair marginals (b, n_l, n_m) of the given pairs of views."""
        kernel, sizes = self.kernel, self.kernel.sizes
        b, device = kernel.base.shape[0], kernel.base.device
        out = {(l, m): torch.zeros(b, sizes[l] * sizes[m], dtype=kernel.base.dtype, device=device) for l, m in edges}
        for block_index, block in enumerate(kernel.blocks):
            local = self.kernel.tables[block_index].local_rows
            masses = self._row_masses(block_index)[:, local]
            for l, m in edges:
                if block.l not in (l, m):
                    index = block.tuples[:, local, l] * sizes[m] + block.tuples[:, local, m]
                    add_at(out[l, m], masses, index.unsqueeze(-1))
            open_edges = [edge for edge in edges if block.l in edge]
            for chunk in self._chunks(block_index) if open_edges else ():
                entries = chunk.entries()
                for l, m in open_edges:
                    other = m if block.l == l else l
                    pair = sum_by_index(entries, block.tuples[:, chunk.rows, other], sizes[other])
                    out[l, m] += (pair.transpose(1, 2) if block.l == l else pair).reshape(out[l, m].shape)
        dtype = self.row_scales[0].dtype
        return {(l, m): self._summed(flat).reshape(-1, sizes[l], sizes[m]).to(dtype) for (l, m), flat in out.items()}

    def pull(self, points: Tensor) -> Tensor:
        """Return Σ_t P(t) Σ_m x_m[t_m] over the tuples t with t_l = i, for every point i of every view l.

        This takes O(k s n d); see `Coupling.pull`.
        """
        return self._pull(points, None)

    def weighted_pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
        """Return Σ_t P(t) / w(|mean_m x_m[t_m]|²) Σ_m x_m[t_m] over the tuples t with t_l = i, for every point i.

        Here l is the view of i, and w is `divisor`.
        """
        return self._pull(points, divisor)

    def _pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor] | None) -> Tensor:
        """Return `weighted_pull`, or `pull` if the divisor is None."""
        kernel, k = self.kernel, self.kernel.k
        out = torch.zeros_like(points)
        for block_index, block in enumerate(kernel.blocks):
            open_points, open_out = kernel.part(points, block.l), kernel.part(out, block.l)
            # Per row, six feature vectors are in memory at a time, and three factors per entry if there is a divisor.
            numbers = 6 * points.shape[-1] + (0 if divisor is None else 3 * open_points.shape[1])
            for chunk in self._chunks(block_index, numbers=numbers):
                columns = block.columns[:, chunk.rows]
                fixed = gather_rows(points, columns[..., 0])
                for position in range(1, k - 1):
                    fixed += gather_rows(points, columns[..., position])
                if divisor is not None:
                    chunk = chunk.weighted(divisor(squared_sums(fixed / k, open_points / k)).reciprocal_())
                total = chunk.times(open_points) + chunk.times() * fixed
                for position in range(k - 1):
                    add_rows(out, total, columns[..., position])
                open_out += chunk.transposed_times(fixed) + chunk.transposed_times() * open_points
        return self._summed(out)

    def product_pull(self, points: Tensor) -> Tensor:
        """Return Σ_t P(t) Π_{m ≠ l} x_m[t_m] over the tuples t with t_l = i, for every point i of every view l.

        This takes O(k s n d).
        """
        kernel, k = self.kernel, self.kernel.k
        out = torch.zeros_like(points)
        for block_index, block in enumerate(kernel.blocks):
            open_points, open_out = kernel.part(points, block.l), kernel.part(out, block.l)
            for chunk in self._chunks(block_index, numbers=4 * k * points.shape[-1]):
                columns = block.columns[:, chunk.rows]
                fixed = [gather_rows(points, columns[..., position]) for position in range(k - 1)]
                without = products_without_each(fixed)
                open_out += chunk.transposed_times(without[0] * fixed[0])
                pulled = chunk.times(open_points)
                for position in range(k - 1):
                    add_rows(out, without[position].mul_(pulled), columns[..., position])
        return self._summed(out)

    def draw(self, count: int, draws: Draws) -> Tensor:
        """Draw tuples (b, count, k), nearly the same number from each block.

        Within a block, tuples are drawn in proportion to their mass. Blocks usually have nearly the same mass, so these
        are approximately draws from the coupling.
        """
        out = []
        for block_index, block in enumerate(self.kernel.blocks):
            num_blocks = len(self.kernel.blocks)
            num_draws = count // num_blocks + (block_index < count % num_blocks)
            chosen = systematic_draws(self._row_masses(block_index), num_draws, draws)
            levels = draws.uniform(*chosen.shape)
            tuples = gather_rows(block.tuples, chosen)
            tuples[..., block.l] = 0
            for chunk in self._chunks(block_index):
                draw_from_chunk(
                    tuples[..., block.l], chunk.table, chunk.column.squeeze(2), chosen - chunk.rows.start, levels
                )
            tuples[..., block.l] = self._summed(tuples[..., block.l])
            out.append(tuples)
        return torch.cat(out, 1)

    def rows(self) -> list[tuple[slice, Tensor]]:
        """Return the full tensor as one slab."""
        kernel, sizes = self.kernel, self.kernel.sizes
        b = kernel.base.shape[0]
        out = torch.zeros(b, math.prod(sizes), dtype=kernel.base.dtype, device=kernel.base.device)
        for block_index, block in enumerate(kernel.blocks):
            for chunk in self._chunks(block_index):
                entries = chunk.entries()
                index = torch.zeros(entries.shape, dtype=torch.long, device=out.device)
                for m, size in enumerate(sizes):
                    points = torch.arange(size, device=out.device)
                    fixed = block.tuples[:, chunk.rows, m : m + 1]
                    index = index * size + (points if m == block.l else fixed)
                out.scatter_add_(1, index.reshape(b, -1), entries.reshape(b, -1).to(out.dtype))
        return [(slice(0, sizes[0]), self._summed(out).reshape(b, *sizes).to(self.row_scales[0].dtype))]


def add_at(out: Tensor, values: Tensor, index: Tensor) -> None:
    """Add values (b, s) to `out` (b, N) at `index` (b, s, j): every value at each of its j indices."""
    spread = values.to(out.dtype).unsqueeze(-1).expand(index.shape).reshape(index.shape[0], -1)
    out.scatter_add_(1, index.reshape(index.shape[0], -1), spread)


def add_rows(out: Tensor, values: Tensor, index: Tensor) -> None:
    """Add rows (b, s, …) to the rows of `out` (b, N, …) at index (b, s)."""
    b, size = out.shape[:2]
    start = torch.arange(b, device=index.device).unsqueeze(1) * size
    flat = out.view(b * size, *out.shape[2:])
    flat.index_add_(0, (index + start).reshape(-1), values.reshape(-1, *values.shape[2:]))


def sum_by_index(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums (b, size, …) of the rows (b, s, …) with the same index (b, s)."""
    out = torch.zeros((values.shape[0], size, *values.shape[2:]), dtype=values.dtype, device=values.device)
    add_rows(out, values, index)
    return out
