"""Tables that may exceed memory: stored if they fit, otherwise recomputed in chunks of rows in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from m3g import _checks
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.processes import processes

Table = TypeVar("Table")

# Fraction of the memory limit for the stored tables of one kernel. The rest is for the previous kernel, the proposal of
# the kernel and intermediate results.
STORED_FRACTION = 1 / 4
# Larger tables are computed in chunks of at most CHUNK_BYTES, beyond which the speed does not increase, and of at most
# CHUNK_FRACTION of the memory limit.
CHUNK_BYTES = 2**26
CHUNK_FRACTION = 1 / 64


class Rows(Generic[Table]):
    """Iterable over the rows of a table in chunks: pairs (slice of rows, table of these rows).

    Args:
        compute: function that returns the table of a slice of rows.
        count: number of rows.
        step: rows per chunk. If it is at least `count`, all rows are computed once and stored; otherwise every pass
            recomputes them.
        shared: if several processes share the solve, compute only the rows of this process, unless there are fewer
            rows than processes. Use `joined` or `summed` to combine the results of all processes.

    Example:
        >>> squares = Rows(lambda rows: [i * i for i in range(rows.start, rows.stop)], count=5, step=2)
        >>> [table for _, table in squares]
        [[0, 1], [4, 9], [16]]
    """

    def __init__(self, compute: Callable[[slice], Table], *, count: int, step: int, shared: bool = False):
        self.compute, self.count, self.step = compute, count, step
        sharing = processes() if shared else None
        self.sharing = None if sharing is None or count < sharing.count else sharing
        self.local_rows = slice(0, count) if self.sharing is None else self.sharing.rows(count)
        self.stored = compute(self.local_rows) if step >= count else None

    def __iter__(self) -> Iterator[tuple[slice, Table]]:
        if self.stored is not None:
            yield self.local_rows, self.stored
            return
        for start in range(self.local_rows.start, self.local_rows.stop, self.step):
            rows = slice(start, min(start + self.step, self.local_rows.stop))
            yield rows, self.compute(rows)

    def joined(self, chunks: Sequence[Tensor]) -> Tensor:
        """Concatenate the results of all chunks, and of all processes, along axis 1."""
        local = torch.cat(list(chunks), 1)
        return local if self.sharing is None else self.sharing.joined(local, self.count)

    def summed(self, local: Tensor) -> Tensor:
        """Return the sum over all rows, given the sum over the rows of this process."""
        return local if self.sharing is None else self.sharing.reduced(local)


def row_chunks(rows: Rows[tuple[Tensor, ...]], row_bytes: float) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Yield the chunks of tables (b, s, …), split further for computations that require `row_bytes` per row."""
    for whole, tables in rows:
        count = whole.stop - whole.start
        step = chunk_rows(count, row_bytes, tables[0].device)
        for start in range(0, count, step):
            part = tuple(tensor[:, start : start + step] for tensor in tables)
            yield slice(whole.start + start, min(whole.start + start + step, whole.stop)), part


def chunk_rows(count: int, row_bytes: float, device: torch.device) -> int:
    """Return the number of rows per chunk, from 1 to `count`; raise if one row exceeds the memory limit."""
    limit = memory_limit(device)
    _checks.fits("one row of a table of solver='sampled'", row_bytes, limit, "use fewer points or smaller batches")
    most = min(CHUNK_BYTES, CHUNK_FRACTION * limit)
    # Compare before dividing, so that a compiled graph is valid for every size that fits.
    return max(1, count if count * row_bytes <= most else int(most // row_bytes))


def rows_at_once(count: int, *, row_bytes: float, total_bytes: float, device: torch.device) -> int:
    """Return the argument `step` of `Rows`, given the bytes of one row and of all tables in use."""
    return count if can_be_stored(total_bytes, device) else chunk_rows(count, row_bytes, device)


def can_be_stored(num_bytes: float, device: torch.device) -> bool:
    """Return whether tables of this size may be stored."""
    return num_bytes <= STORED_FRACTION * memory_limit(device)


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return the rows of a table (b, n, …) at the indices (b, s, …).

    The result has the shape of `index`, followed by that of a row.
    """
    if table.shape[0] == 1:
        return table[0][index[0]].unsqueeze(0)
    batch = torch.arange(table.shape[0], device=table.device)
    return table[batch.reshape(-1, *[1] * (index.ndim - 1)), index]


def transposed_times(table: Tensor, values: Tensor) -> Tensor:
    """Return Tᵀ V for T (b, s, n) and V (b, s, d), as (Vᵀ T)ᵀ, which is ten times as fast on a CPU for small d."""
    return torch.bmm(values.transpose(1, 2), table).transpose(1, 2)


def systematic_draws(weights: Tensor, count: int, draws: Draws) -> Tensor:
    """Return row indices (b, count), drawn in proportion to weights (b, s) by systematic sampling."""
    cumulative = weights.cumsum(1)
    offset = draws.uniform(cumulative.shape[0], 1)
    levels = (torch.arange(count, device=cumulative.device) + offset) / count
    return torch.searchsorted(cumulative, levels.to(cumulative.dtype) * cumulative[:, -1:]).clamp_(
        max=cumulative.shape[1] - 1
    )


def draw_from_rows(table: Tensor, column: Tensor, rows: Tensor, levels: Tensor) -> Tensor:
    """Draw a point for each row index in `rows` (b, c), in proportion to that row of table · column (b, s, n): (b, c).

    The level, a uniform random number in `levels` (b, c), selects the point by the inverse cumulative distribution.
    """
    b, _, n = table.shape
    batch = torch.arange(b, device=table.device).unsqueeze(1)
    step = chunk_rows(rows.shape[1], b * n * table.element_size(), table.device)
    points = []
    for chunk, level in zip(rows.split(step, 1), levels.split(step, 1)):
        cumulative = (table[batch, chunk] * column.unsqueeze(1)).cumsum(2)
        level = level.unsqueeze(2).to(cumulative.dtype) * cumulative[..., -1:]
        points.append(torch.searchsorted(cumulative, level).clamp_(max=n - 1).squeeze(2))
    return torch.cat(points, 1)


def draw_from_chunk(out: Tensor, table: Tensor, column: Tensor, rows: Tensor, levels: Tensor) -> None:
    """Write into `out` (b, c) the points that `draw_from_rows` would return, for the row indices within `table`.

    `table` is a chunk of a larger table, and the indices are relative to its first row. Other indices are skipped.
    """
    chosen = ((rows >= 0) & (rows < table.shape[1])).nonzero(as_tuple=True)
    step = chunk_rows(len(chosen[0]), table.shape[2] * table.element_size(), table.device)
    for first, second in zip(chosen[0].split(step), chosen[1].split(step)):
        cumulative = (table[first, rows[first, second]] * column[first]).cumsum(1)
        level = levels[first, second].unsqueeze(1).to(cumulative.dtype) * cumulative[:, -1:]
        out[first, second] = torch.searchsorted(cumulative, level).clamp_(max=table.shape[2] - 1).squeeze(1)
