"""Coupling of a weighted list of tuples (tuple_kernel.py): its marginals, pair marginals, derivatives and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g.costs.multilinear import products_without_each
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.interfaces import ListedCoupling
from m3g.solvers.sampled.log_kernel import pick, squared_sums
from m3g.solvers.sampled.recomputed_rows import choose_within, pieces, systematic, transposed_times

if TYPE_CHECKING:
    from m3g.solvers.sampled.tuple_kernel import TupleList


@dataclass
class Piece:
    """Some rows of a block of a coupling: entry (s, i) is row[s] · table[s, i] · column[i].

    `tilt`, a factor per row and one per column, multiplies the entries by their sum.
    """

    rows: slice
    table: Tensor  # (b, s, n)
    row: Tensor  # (b, s, 1)
    column: Tensor  # (b, n, 1)
    sums: Tensor | None  # table @ column, if known
    tilt: tuple[Tensor, Tensor] | None

    def times(self, matrix: Tensor | None = None) -> Tensor:
        """Entries @ matrix: (b, n, d) -> (b, s, d); None means ones."""
        scaled = self.column if matrix is None else self.column * matrix
        plain = self.sums if matrix is None and self.sums is not None else torch.bmm(self.table, scaled)
        if self.tilt is None:
            return self.row * plain
        return self.row * (self.tilt[0] * plain + torch.bmm(self.table, self.tilt[1] * scaled))

    def transposed_times(self, matrix: Tensor | None = None) -> Tensor:
        """Entriesᵀ @ matrix: (b, s, d) -> (b, n, d); None means ones."""
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

    def weighted(self, factors: Tensor) -> Piece:
        """Multiply every entry by a factor (b, s, n), which is overwritten."""
        return replace(self, table=factors.mul_(self.table), sums=None)


@dataclass
class TupleCoupling(ListedCoupling):
    """Entry (s, i) of block l is row_scales_l[s] · table_l[s, i] · column_scales_l[i]; see `m3g.costs.Coupling`.

    `tilt` (one factor per row and per column of each block) multiplies the entries by row factor + column factor; it
    represents signed measures, the derivatives of couplings.
    """

    listed: TupleList
    row_scales: list[Tensor]
    column_scales: list[Tensor]
    row_sums: list[Tensor]
    log_factor: Tensor
    tilt: tuple[list[Tensor], list[Tensor]] | None = None

    dense_pairs = True

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.listed.sizes

    def _pieces(self, place: int, *, numbers: int = 0) -> Iterator[Piece]:
        """Yield a block in chunks of rows, smaller if each row needs this many additional numbers."""
        column = self.column_scales[place].unsqueeze(2)
        tables = self.listed.tables[place]
        row_bytes = numbers * column.shape[0] * column.element_size()
        for rows, (table, _) in pieces(tables, row_bytes) if numbers else tables:
            row, sums = self.row_scales[place][:, rows].unsqueeze(2), self.row_sums[place][:, rows].unsqueeze(2)
            tilt = None
            if self.tilt is not None:
                tilt = (self.tilt[0][place][:, rows].unsqueeze(2), self.tilt[1][place].unsqueeze(2))
            yield Piece(rows, table, row, column, sums, tilt)

    def marginals(self) -> Tensor:
        """Return all marginals, concatenated: (b, N), in float64."""
        listed = self.listed
        out = torch.zeros_like(listed.base)
        for place, block in enumerate(listed.blocks):
            there = listed.part(out, block.l)
            for piece in self._pieces(place):
                add(out, piece.times().squeeze(2), block.columns[:, piece.rows])
                there += piece.transposed_times().squeeze(2)
        return self._summed(out)

    def _summed(self, own: Tensor) -> Tensor:
        """Return the sum over the rows of all blocks, given the sum over this process's rows."""
        return self.listed.tables[0].summed(own)

    def _totals(self, place: int) -> Tensor:
        """Return the total of every row (b, s), in float64."""
        if self.tilt is None:
            return (self.row_scales[place] * self.row_sums[place]).to(self.listed.base.dtype)
        totals = self.listed.tables[place].joined([piece.times() for piece in self._pieces(place)])
        return totals.squeeze(2).to(self.listed.base.dtype)

    def sample_weights(self) -> Tensor:
        """Return the total of the rows of every sample, over all blocks: (b, s)."""
        return torch.stack(
            [self._totals(place)[:, block.num_exact :] for place, block in enumerate(self.listed.blocks)]
        ).sum(0)

    def changed(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> TupleCoupling:
        """Return the derivative of the coupling in a direction of log scalings, and of weights of rows."""
        listed, dtype = self.listed, self.row_scales[0].dtype
        rows, columns = [], []
        for place, block in enumerate(listed.blocks):
            fixed = pick(log_change, block.columns).sum(-1)
            rows.append((fixed if row_factors is None else fixed + row_factors[place]).to(dtype))
            columns.append(listed.part(log_change, block.l).to(dtype))
        return replace(self, tilt=(rows, columns))

    def marginal(self, l: int) -> Tensor:
        return self.listed.part(self.marginals(), l).to(self.row_scales[0].dtype)

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs([(l, m)])[l, m]

    def pairs(self, edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        """Return the pair marginals (b, n_l, n_m) of the given pairs of views."""
        listed, sizes = self.listed, self.listed.sizes
        b, device = listed.base.shape[0], listed.base.device
        out = {(l, m): torch.zeros(b, sizes[l] * sizes[m], dtype=listed.base.dtype, device=device) for l, m in edges}
        for place, block in enumerate(listed.blocks):
            own = self.listed.tables[place].own
            totals = self._totals(place)[:, own]
            for l, m in edges:
                if block.l not in (l, m):
                    index = block.tuples[:, own, l] * sizes[m] + block.tuples[:, own, m]
                    add(out[l, m], totals, index.unsqueeze(-1))
            here = [edge for edge in edges if block.l in edge]
            for piece in self._pieces(place) if here else ():
                entries = piece.entries()
                for l, m in here:
                    other = m if block.l == l else l
                    pair = put(entries, block.tuples[:, piece.rows, other], sizes[other])
                    out[l, m] += (pair.transpose(1, 2) if block.l == l else pair).reshape(out[l, m].shape)
        dtype = self.row_scales[0].dtype
        return {(l, m): self._summed(flat).reshape(-1, sizes[l], sizes[m]).to(dtype) for (l, m), flat in out.items()}

    def pull(self, points: Tensor) -> Tensor:
        """m_l x_l + Σ_{m ≠ l} P_lm x_m = Σ_t P(t) Σ_m x_m[t_m] over the tuples with each point, in O(k s n d)."""
        return self._pull(points, None)

    def weighted_pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `pull` with every tuple divided by w(|mean|²) of its points."""
        return self._pull(points, divisor)

    def _pull(self, points: Tensor, divisor: Callable[[Tensor], Tensor] | None) -> Tensor:
        listed, k = self.listed, self.listed.k
        out = torch.zeros_like(points)
        for place, block in enumerate(listed.blocks):
            own, there = listed.part(points, block.l), listed.part(out, block.l)
            # Six vectors of features per row exist at a time, and with weights three factors per entry.
            numbers = 6 * points.shape[-1] + (0 if divisor is None else 3 * own.shape[1])
            for piece in self._pieces(place, numbers=numbers):
                columns = block.columns[:, piece.rows]
                fixed = pick(points, columns[..., 0])
                for position in range(1, k - 1):
                    fixed += pick(points, columns[..., position])
                if divisor is not None:
                    piece = piece.weighted(divisor(squared_sums(fixed / k, own / k)).reciprocal_())
                whole = piece.times(own) + piece.times() * fixed
                for position in range(k - 1):
                    add_rows(out, whole, columns[..., position])
                there += piece.transposed_times(fixed) + piece.transposed_times() * own
        return self._summed(out)

    def product_pull(self, points: Tensor) -> Tensor:
        """Σ_t P(t) Π_{m ≠ l} x_m[t_m] over the tuples with each point of view l, in O(k s n d)."""
        listed, k = self.listed, self.listed.k
        out = torch.zeros_like(points)
        for place, block in enumerate(listed.blocks):
            own, there = listed.part(points, block.l), listed.part(out, block.l)
            for piece in self._pieces(place, numbers=4 * k * points.shape[-1]):
                columns = block.columns[:, piece.rows]
                fixed = [pick(points, columns[..., position]) for position in range(k - 1)]
                without = products_without_each(fixed)
                there += piece.transposed_times(without[0] * fixed[0])
                pulled = piece.times(own)
                for position in range(k - 1):
                    add_rows(out, without[position].mul_(pulled), columns[..., position])
        return self._summed(out)

    def draw(self, count: int, draws: Draws) -> Tensor:
        """Draw tuples (b, count, k) from the coupling, equally many from each block."""
        out = []
        for place, block in enumerate(self.listed.blocks):
            num_blocks = len(self.listed.blocks)
            num_draws = count // num_blocks + (place < count % num_blocks)
            chosen = systematic(self._totals(place), num_draws, draws)
            levels = draws.uniform(*chosen.shape)
            tuples = pick(block.tuples, chosen)
            tuples[..., block.l] = 0
            for piece in self._pieces(place):
                choose_within(
                    tuples[..., block.l], piece.table, piece.column.squeeze(2), chosen - piece.rows.start, levels
                )
            tuples[..., block.l] = self._summed(tuples[..., block.l])
            out.append(tuples)
        return torch.cat(out, 1)

    def rows(self) -> list[tuple[slice, Tensor]]:
        """Return the full tensor, as one slab."""
        listed, sizes = self.listed, self.listed.sizes
        b = listed.base.shape[0]
        out = torch.zeros(b, math.prod(sizes), dtype=listed.base.dtype, device=listed.base.device)
        for place, block in enumerate(listed.blocks):
            for piece in self._pieces(place):
                entries = piece.entries()
                index = torch.zeros(entries.shape, dtype=torch.long, device=out.device)
                for m, size in enumerate(sizes):
                    here = block.tuples[:, piece.rows, m : m + 1]
                    index = index * size + (torch.arange(size, device=out.device) if m == block.l else here)
                out.scatter_add_(1, index.reshape(b, -1), entries.reshape(b, -1).to(out.dtype))
        return [(slice(0, sizes[0]), self._summed(out).reshape(b, *sizes).to(self.row_scales[0].dtype))]


def add(out: Tensor, values: Tensor, index: Tensor) -> None:
    """Add values (b, s) to out (b, N) at every place of index (b, s, j)."""
    spread = values.to(out.dtype).unsqueeze(-1).expand(index.shape).reshape(index.shape[0], -1)
    out.scatter_add_(1, index.reshape(index.shape[0], -1), spread)


def add_rows(out: Tensor, values: Tensor, index: Tensor) -> None:
    """Add rows (b, s, …) to out (b, N, …) at index (b, s)."""
    b, size = out.shape[:2]
    start = torch.arange(b, device=index.device).unsqueeze(1) * size
    flat = out.view(b * size, *out.shape[2:])
    flat.index_add_(0, (index + start).reshape(-1), values.reshape(-1, *values.shape[2:]))


def put(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Sum rows (b, s, …) into (b, size, …) by index (b, s)."""
    out = torch.zeros((values.shape[0], size, *values.shape[2:]), dtype=values.dtype, device=values.device)
    add_rows(out, values, index)
    return out
