"""Kernel represented by a weighted list of tuples.

A row of the list fixes the points of k - 1 views and leaves one view l open. It represents all n_l tuples that complete
it, at their exact cost. A block contains the rows with the same open view. A full list enumerates all tuples in one
block. A sampled list has k blocks, one per view, with three kinds of rows:

- Matched rows fix k - 1 points of one object. Over all blocks, they contain the true tuples and all tuples that differ
  from a true one in a single view.
- Sampled rows have the weight 1 / (k · expected number of draws of the row), because every tuple that is not in a
  matched row completes k possible rows, one per block. Tuples of matched rows are removed from sampled rows.
- Anchors are tuples that support a coupling with the required marginals, if the true matching does not have these
  marginals. They are weighted like sampled rows, and the expected numbers of draws include them.

The list is an unbiased, non-negative estimate of the kernel. It is exact where nearly solved batches have their mass,
and always supports a coupling with the required marginals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from m3g.solvers.sampled.interfaces import SampledKernel
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import Rows, gather_rows, rows_at_once
from m3g.solvers.sampled.tuple_coupling import TupleCoupling

# With fewer samples per point, some points may be fixed by no sampled row, and results are untrusted.
TUPLES_PER_POINT = 4


@dataclass(frozen=True)
class Block:
    """Rows with view l open: matched rows, then anchors, then samples.

    Attributes:
        tuples: (b, s, k); entry l has no effect on the row.
        columns: (b, s, k - 1), indices of the other entries in the concatenation of all views.
        log_rest: (b, s), the terms of the log kernel without view l, plus the log weight of the row.
        num_matched: number of matched rows; 0 in a full list.
        num_exact: number of rows that are not sampled: matched rows and anchors, or all rows of a full list.
    """

    l: int
    tuples: Tensor
    columns: Tensor
    log_rest: Tensor
    num_matched: int
    num_exact: int


@dataclass(frozen=True)
class TupleList(SampledKernel):
    """List of tuples in blocks of rows, built by `full_list` or `sampled_list`."""

    log_kernel: LogKernel
    blocks: list[Block]
    exact: bool
    base: Tensor
    tables: Sequence[Rows[tuple[Tensor, ...]]] = ()  # one per block, computed by `block_table`

    @property
    def sizes(self) -> list[int]:
        return list(self.log_kernel.sizes)

    @property
    def tuples(self) -> Tensor:
        return self.blocks[0].tuples

    @property
    def num_samples(self) -> int:
        return self.blocks[0].tuples.shape[1] - self.blocks[0].num_exact

    def with_base(self, log_scaling: Tensor) -> TupleList:
        b, device = log_scaling.shape[0], log_scaling.device
        item_bytes = b * self.log_kernel.itemsize
        # The temporary numbers of one block are in memory while it is built.
        numbers = sum(block.tuples.shape[1] * self.sizes[block.l] for block in self.blocks)
        total_bytes = item_bytes * (numbers + self.blocks[0].tuples.shape[1] * self.log_kernel.num_temporaries)
        tables = []
        for block in self.blocks:
            count = block.tuples.shape[1]
            row_bytes = item_bytes * max(self.sizes[block.l], self.log_kernel.num_temporaries)
            step = rows_at_once(count, row_bytes=row_bytes, total_bytes=total_bytes, device=device)
            compute = partial(block_table, self.log_kernel, block, self.part(log_scaling, block.l), once=not self.exact)
            tables.append(Rows(compute, count=count, step=step, shared=True))
        return replace(self, base=log_scaling, tables=tables)

    def part(self, vector: Tensor, l: int) -> Tensor:
        """Return the entries of view l of a tensor (b, N, …)."""
        start = sum(self.sizes[:l])
        return vector[:, start : start + self.sizes[l]]

    def half_signs(self) -> list[Tensor]:
        """Return the signs of `SampledKernel.half_signs` for the rows of every block: one tensor (b, s) per block."""
        out = []
        for block in self.blocks:
            sign = torch.zeros_like(block.log_rest)
            sampled = sign[:, block.num_exact :]
            half = sampled.shape[1] // 2
            sampled[:, :half], sampled[:, half:] = 1.0, -1.0
            out.append(sign)
        return out

    def untrusted_reasons(self) -> list[str]:
        if self.exact or self.num_samples >= TUPLES_PER_POINT * max(self.sizes):
            return []
        return [f"it has fewer than {TUPLES_PER_POINT} tuples for each of {max(self.sizes)} points"]

    def coupling_at(self, log_scaling: Tensor, mass: Tensor) -> TupleCoupling:
        logs, columns, sums = [], [], []
        for block, tables in zip(self.blocks, self.tables):
            change = self.part(log_scaling, block.l) - self.part(self.base, block.l)
            scales, block_sums = [], []
            for _, (table, log_scale) in tables:
                column = change.exp().to(table.dtype)
                scales.append(log_scale)
                block_sums.append(torch.bmm(table, column.unsqueeze(2)).squeeze(2))
            columns.append(column)
            sums.append(tables.joined(block_sums))
            logs.append(block.log_rest + tables.joined(scales) + gather_rows(log_scaling, block.columns).sum(-1))
        peak = torch.stack([log.amax(1) for log in logs]).amax(0).unsqueeze(1)
        rows = [(log - peak).exp().to(total.dtype) for log, total in zip(logs, sums)]
        wide = log_scaling.dtype
        current_mass = sum((row.to(wide) * total).sum(1, keepdim=True) for row, total in zip(rows, sums))
        factor = mass / current_mass
        scaled = [row * factor.to(row.dtype) for row in rows]
        return TupleCoupling(self, scaled, columns, sums, log_factor=factor.log() - peak)


def _block(log_kernel: LogKernel, l: int, tuples: Tensor, num_matched: int, num_exact: int) -> Block:
    sizes, k = log_kernel.sizes, len(log_kernel.sizes)
    others = [m for m in range(k) if m != l]
    starts = torch.tensor([sum(sizes[:m]) for m in others], device=tuples.device)
    return Block(l, tuples, tuples[..., others] + starts, log_kernel.rest(l, tuples), num_matched, num_exact)


def full_list(log_kernel: LogKernel) -> TupleList:
    """Return the list of all tuples, with the largest view open."""
    sizes, b, device = log_kernel.sizes, log_kernel.shift.shape[0], log_kernel.shift.device
    l = max(range(len(sizes)), key=lambda m: sizes[m])
    points = [torch.arange(1 if m == l else n, device=device) for m, n in enumerate(sizes)]
    tuples = torch.stack([axis.reshape(-1) for axis in torch.meshgrid(*points, indexing="ij")], -1)
    block = _block(log_kernel, l, tuples.expand(b, -1, -1), 0, len(tuples))
    return TupleList(log_kernel, [block], exact=True, base=torch.zeros_like(log_kernel.shift))


def sampled_list(log_kernel: LogKernel, samples: Tensor, log_counts: Tensor, anchors: Tensor) -> TupleList:
    """Return a list of matched rows, anchors and samples. Requires three or more views.

    Args:
        samples: (b, s, k), tuples that define one row in every block.
        log_counts: (b, c + s, k) for the anchors and the samples. Entry l is the logarithm of the expected number of
            samples that agree with the tuple in all views except l.
        anchors: (b, c, k), tuples that also define one row in every block.
    """
    sizes, k, device = log_kernel.sizes, len(log_kernel.sizes), samples.device
    both, num_anchors = torch.cat([anchors, samples], 1), anchors.shape[1]
    blocks = []
    for l in range(k):
        num_matched = min(size for m, size in enumerate(sizes) if m != l)
        matched = torch.arange(num_matched, device=device).reshape(1, -1, 1).expand(samples.shape[0], -1, k).clone()
        matched[..., l].clamp_(max=sizes[l] - 1)
        block = _block(log_kernel, l, torch.cat([matched, both], 1), num_matched, num_matched + num_anchors)
        counts = log_counts[..., l]
        if num_anchors:
            counts = torch.logaddexp(counts, _num_equal(both, num_anchors, l).to(counts.dtype).log())
        block.log_rest[:, num_matched:] -= counts + math.log(k)
        blocks.append(block)
    return TupleList(log_kernel, blocks, exact=False, base=torch.zeros_like(log_kernel.shift))


def _num_equal(tuples: Tensor, count: int, l: int) -> Tensor:
    """Return how many of the first `count` tuples equal each tuple (b, s, k) in all entries except l: (b, s)."""
    keys = tuple_keys(tuples, without=l)
    first = keys[:, :count].sort(1).values
    return torch.searchsorted(first, keys, right=True) - torch.searchsorted(first, keys)


def tuple_keys(tuples: Tensor, *, without: int | None = None) -> Tensor:
    """Return a hash of every tuple (b, s, k), or of all its entries but one: (b, s).

    The hash is a sum of odd multiples of the entries modulo 2^64; the probability of a collision is negligible.
    """
    factors = torch.tensor([0x9E3779B97F4A7C15 * (2 * m + 1) ** 7 % 2**62 | 1 for m in range(tuples.shape[2])])
    if without is not None:
        factors[without] = 0
    return (tuples * factors.to(tuples.device)).sum(-1)


def block_table(log_kernel: LogKernel, block: Block, base: Tensor, rows: slice, *, once: bool) -> tuple[Tensor, ...]:
    """Return some rows of a block as distributions over the open view, at its log scalings `base` (b, n_l).

    Returns the normalised rows (b, rows, n_l), and the logarithms of their sums before normalisation (b, rows). With
    `once`, every tuple of a matched row has a total weight of 1 (see `_count_once`).
    """
    table = log_kernel.conditional(block.l, block.tuples[:, rows])
    table += base.to(table.dtype).unsqueeze(1)
    peak = table.amax(2, keepdim=True)
    table.sub_(peak).exp_()
    if once:
        _count_once(table, block, rows)
    sums = table.sum(2, keepdim=True)
    table.div_(sums.clamp_min(torch.finfo(table.dtype).tiny))
    return table, (peak.to(base.dtype) + sums.to(base.dtype).log()).squeeze(2)


def _count_once(table: Tensor, block: Block, rows: slice) -> None:
    """Modify a table in place so that every tuple of a matched row has a total weight of 1.

    True tuples, which are in k matched rows, are divided by k. Tuples of matched rows are removed from other rows.
    """
    k, size = block.tuples.shape[2], table.shape[2]
    last = min(rows.stop, block.num_matched, size)
    if rows.start < last:
        table[:, : last - rows.start].diagonal(rows.start, dim1=1, dim2=2).div_(k)
    first = max(block.num_matched, rows.start)
    fixed = block.tuples[:, first : rows.stop][..., [m for m in range(k) if m != block.l]]
    sampled = table[:, first - rows.start :]
    # A tuple of a matched row has k - 1 equal entries. At least one of any two fixed entries is among them.
    for candidate in (fixed[..., 0], fixed[..., 1]):
        agree = (fixed == candidate.unsqueeze(-1)).sum(-1)
        sampled.masked_fill_((agree == k - 1).unsqueeze(-1), 0.0)
        completes = (agree == k - 2) & (candidate < size)
        column = candidate.clamp(max=size - 1).unsqueeze(-1)
        remaining = sampled.gather(2, column).masked_fill_(completes.unsqueeze(-1), 0.0)
        sampled.scatter_(2, column, remaining)
