"""Tables that may exceed memory: stored if they fit, otherwise recomputed in chunks whenever they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from m3g import _checks
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.processes import processes

Made = TypeVar("Made")

# Fraction of the memory limit for the stored tables of one list; the previous list, the mixture from which it was drawn
# and intermediate results need memory too.
KEPT_PART = 1 / 4
# Otherwise rows are computed in chunks of at most this many bytes (more are not faster), or this fraction of the limit.
CHUNK_BYTES = 2**26
CHUNK_PART = 1 / 64


class Rows(Generic[Made]):
    """Rows 0 … count - 1 of a table, which `make` computes for any slice.

    Iteration yields (slice, result of `make`). If `step` >= count, all rows are computed once and stored; otherwise
    `step` rows at a time are recomputed in every pass. With `shared`, if several processes share the solve, each
    computes its own rows only. Results are then partial, and `joined` or `summed` completes them.

    Example:
        >>> squares = Rows(lambda rows: [i * i for i in range(rows.start, rows.stop)], count=5, step=2)
        >>> [made for _, made in squares]
        [[0, 1], [4, 9], [16]]
    """

    def __init__(self, make: Callable[[slice], Made], *, count: int, step: int, shared: bool = False):
        self.make, self.count, self.step = make, count, step
        sharing = processes() if shared else None
        self.sharing = None if sharing is None or count < sharing.count else sharing
        self.own = slice(0, count) if self.sharing is None else self.sharing.rows(count)
        self.kept = make(self.own) if step >= count else None

    def __iter__(self) -> Iterator[tuple[slice, Made]]:
        if self.kept is not None:
            yield self.own, self.kept
            return
        for start in range(self.own.start, self.own.stop, self.step):
            rows = slice(start, min(start + self.step, self.own.stop))
            yield rows, self.make(rows)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate results of chunks to all rows, along axis 1."""
        own = torch.cat(list(parts), 1)
        return own if self.sharing is None else self.sharing.joined(own, self.count)

    def summed(self, own: Tensor) -> Tensor:
        """Return the sum over all rows, given the sum over this process's rows."""
        return own if self.sharing is None else self.sharing.reduced(own)


def pieces(rows: Rows[tuple[Tensor, ...]], row_bytes: float) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Yield rows of tensors (b, s, …) in parts for computations that need `row_bytes` per row."""
    for whole, made in rows:
        count = whole.stop - whole.start
        step = chunk_rows(count, row_bytes, made[0].device)
        for start in range(0, count, step):
            part = tuple(tensor[:, start : start + step] for tensor in made)
            yield slice(whole.start + start, min(whole.start + start + step, whole.stop)), part


def chunk_rows(count: int, row_bytes: float, device: torch.device) -> int:
    """Return the number of rows per chunk: all if they fit, at least one; raise if one row exceeds the memory limit."""
    limit = memory_limit(device)
    _checks.fits("one row of a table of solver='sampled'", row_bytes, limit, "use fewer points or smaller batches")
    most = min(CHUNK_BYTES, CHUNK_PART * limit)
    # Compared before dividing, so that a compiled graph is valid for every size that fits.
    return max(1, count if count * row_bytes <= most else int(most // row_bytes))


def rows_at_once(count: int, *, row_bytes: float, total_bytes: float, device: torch.device) -> int:
    """Return the step of `Rows`, given the bytes of one row and of all tables in use."""
    return count if can_be_kept(total_bytes, device) else chunk_rows(count, row_bytes, device)


def can_be_kept(num_bytes: float, device: torch.device) -> bool:
    return num_bytes <= KEPT_PART * memory_limit(device)


def transposed_times(table: Tensor, values: Tensor) -> Tensor:
    """Tᵀ V for (b, s, n) and (b, s, d), computed as (Vᵀ T)ᵀ, which is ten times as fast for few columns on a CPU."""
    return torch.bmm(values.transpose(1, 2), table).transpose(1, 2)


def systematic(weights: Tensor, count: int, draws: Draws) -> Tensor:
    """Draw rows (b, count) in proportion to weights (b, s), at evenly spaced levels."""
    steps = weights.cumsum(1)
    offset = draws.uniform(steps.shape[0], 1)
    levels = (torch.arange(count, device=steps.device) + offset) / count
    return torch.searchsorted(steps, levels.to(steps.dtype) * steps[:, -1:]).clamp_(max=steps.shape[1] - 1)


def choose_each(table: Tensor, column: Tensor, rows: Tensor, levels: Tensor) -> Tensor:
    """Choose one point from each of the given rows (b, c) of table · column (b, s, n), by its level: (b, c)."""
    b, _, n = table.shape
    batch = torch.arange(b, device=table.device).unsqueeze(1)
    step = chunk_rows(rows.shape[1], b * n * table.element_size(), table.device)
    points = []
    for some, level in zip(rows.split(step, 1), levels.split(step, 1)):
        steps = (table[batch, some] * column.unsqueeze(1)).cumsum(2)
        level = level.unsqueeze(2).to(steps.dtype) * steps[..., -1:]
        points.append(torch.searchsorted(steps, level).clamp_(max=n - 1).squeeze(2))
    return torch.cat(points, 1)


def choose_within(out: Tensor, table: Tensor, column: Tensor, rows: Tensor, levels: Tensor) -> None:
    """Choose one point from each of the given rows (b, c) of table · column (b, s, n), by its level, into out (b, c).

    Rows outside the table are skipped, because they are in another chunk.
    """
    chosen = ((rows >= 0) & (rows < table.shape[1])).nonzero(as_tuple=True)
    step = chunk_rows(len(chosen[0]), table.shape[2] * table.element_size(), table.device)
    for first, second in zip(chosen[0].split(step), chosen[1].split(step)):
        steps = (table[first, rows[first, second]] * column[first]).cumsum(1)
        level = levels[first, second].unsqueeze(1).to(steps.dtype) * steps[:, -1:]
        out[first, second] = torch.searchsorted(steps, level).clamp_(max=table.shape[2] - 1).squeeze(1)
