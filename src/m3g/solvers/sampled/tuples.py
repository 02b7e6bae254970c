"""The kernel of a k-view problem known on a weighted list of tuples, k blocks of them.

Block l holds tuples with view l left open: row s fixes the other k - 1 entries and stands for all n_l tuples that
complete it, at their exact cost. Two kinds of rows:

- the matched rows (j, …, j): with every view left open in turn they list the true tuples and all tuples that differ
  from a true one in a single view, each exactly once;
- sampled rows, weighted by 1 / (expected number of times the row is drawn), without the tuples listed above. Every
  other tuple can be reached from k rows, one per block, so each block counts 1/k.

The list is an unbiased estimate of the whole kernel, non-negative, exact where nearly solved batches have their
mass, and it always admits the true matching.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from m3g.solvers.sampled.log_kernel import LogKernel, pick
from m3g.solvers.sampled.tables import Rows, rows_at_once
from m3g.solvers.sampled.tuple_coupling import ListedCoupling
from m3g.solvers.shared.precision import vector_dtype


@dataclass
class Block:
    """Rows with view l open."""

    l: int
    tuples: Tensor  # (b, s, k); entry l is not used
    columns: Tensor  # (b, s, k-1): places of the other entries in the concatenation of all views
    log_rest: Tensor  # (b, s): log kernel of the fixed entries among themselves, and the log weight of the row
    num_matched: int


class TupleList:
    """Matched rows and sampled rows, with the sums a solver needs; see the module for what they are.

    Args:
        log_kernel: log kernels.
        samples: tuples (b, s, k), each used once in every block.
        log_counts: (b, s, k), entry l being the log of the expected number of draws of the tuple's other entries.
    """

    def __init__(self, log_kernel: LogKernel, samples: Tensor, log_counts: Tensor):
        self.log_kernel = log_kernel
        self.sizes = list(log_kernel.sizes)
        self.k = len(self.sizes)
        self.starts = [sum(self.sizes[:l]) for l in range(self.k)]
        self.total = sum(self.sizes)
        self.num_samples = samples.shape[1]
        self.wide = vector_dtype(samples.device)
        self.blocks = [self._block(l, samples, log_counts[..., l]) for l in range(self.k)]
        # Per block, see `block_table`. Not a part of it, because they hold on to it.
        self.tables: list[Rows[tuple[Tensor, ...]]] = []

    def _block(self, l: int, samples: Tensor, log_counts: Tensor) -> Block:
        k, device = self.k, samples.device
        num_matched = min(size for m, size in enumerate(self.sizes) if m != l)
        matched = torch.arange(num_matched, device=device).reshape(1, -1, 1).expand(samples.shape[0], -1, k).clone()
        matched[..., l].clamp_(max=self.sizes[l] - 1)
        # With two views every tuple is in both blocks, and nothing is left to sample.
        tuples = matched if k == 2 else torch.cat([matched, samples], 1)
        log_rest = self.log_kernel.rest(l, tuples)
        if k == 2:
            log_rest -= math.log(2)
        else:
            log_rest[:, num_matched:] -= log_counts + math.log(k)
        others = [m for m in range(k) if m != l]
        starts = torch.tensor([self.starts[m] for m in others], device=device)
        return Block(l, tuples, tuples[..., others] + starts, log_rest, num_matched)

    def rebase(self, log_scaling: Tensor) -> None:
        """Take these log scalings (b, N) into the tables, so that what is stored stays in the range of its type."""
        self.base = log_scaling
        self.tables = []  # the old ones are let go first
        b, device = log_scaling.shape[0], log_scaling.device
        item_bytes = b * self.log_kernel.itemsize
        # The features of one block are there while it is made.
        numbers = sum(block.tuples.shape[1] * self.sizes[block.l] for block in self.blocks)
        total_bytes = item_bytes * (numbers + self.blocks[0].tuples.shape[1] * self.log_kernel.features)
        for block in self.blocks:
            count = block.tuples.shape[1]
            row_bytes = item_bytes * max(self.sizes[block.l], self.log_kernel.features)
            step = rows_at_once(count, row_bytes=row_bytes, total_bytes=total_bytes, device=device)
            make = partial(block_table, self.log_kernel, block, self.part(log_scaling, block.l))
            self.tables.append(Rows(make, count=count, step=step))

    def part(self, vector: Tensor, l: int) -> Tensor:
        """The entries of view l in (b, N, …)."""
        return vector[:, self.starts[l] : self.starts[l] + self.sizes[l]]

    def halves(self) -> list[Tensor]:
        """Per block, +1 on the first half of the samples, -1 on the second and 0 on the matched rows: (b, rows)."""
        out = []
        for block in self.blocks:
            sign = torch.zeros_like(block.log_rest)
            sampled = sign[:, block.num_matched :]
            half = sampled.shape[1] // 2
            sampled[:, :half], sampled[:, half:] = 1.0, -1.0
            out.append(sign)
        return out

    def at(self, log_scaling: Tensor, mass: Tensor) -> ListedCoupling:
        """The coupling of these log scalings (b, N), scaled to the given mass (b, 1)."""
        logs, columns, sums = [], [], []
        for block, tables in zip(self.blocks, self.tables):
            change = self.part(log_scaling, block.l) - self.part(self.base, block.l)
            scales, found = [], []
            for _, (table, log_scale) in tables:
                column = change.exp().to(table.dtype)
                scales.append(log_scale)
                found.append(torch.bmm(table, column.unsqueeze(2)).squeeze(2))
            columns.append(column)
            sums.append(torch.cat(found, 1))
            logs.append(block.log_rest + torch.cat(scales, 1) + pick(log_scaling, block.columns).sum(-1))
        peak = torch.stack([log.amax(1) for log in logs]).amax(0).unsqueeze(1)
        rows = [(log - peak).exp().to(total.dtype) for log, total in zip(logs, sums)]
        whole = sum((row.to(self.wide) * total).sum(1, keepdim=True) for row, total in zip(rows, sums))
        factor = mass / whole
        scaled = [row * factor.to(row.dtype) for row in rows]
        return ListedCoupling(self, scaled, columns, sums, log_factor=factor.log() - peak)


def block_table(log_kernel: LogKernel, block: Block, base: Tensor, rows: slice) -> tuple[Tensor, ...]:
    """Some rows of a block at log scalings `base` (b, n_l) of the open view.

    Returns its conditional distribution (b, s, n_l), and the log of what the rows were divided by (b, s).
    """
    table = log_kernel.conditional(block.l, block.tuples[:, rows])
    table += base.to(table.dtype).unsqueeze(1)
    peak = table.amax(2, keepdim=True)
    table.sub_(peak).exp_()
    _leave_out(table, block, rows)
    sums = table.sum(2, keepdim=True)
    table.div_(sums.clamp_min(torch.finfo(table.dtype).tiny))
    return table, (peak.to(base.dtype) + sums.to(base.dtype).log()).squeeze(2)


def _leave_out(table: Tensor, block: Block, rows: slice) -> None:
    """Each tuple once: true tuples are in every block, neighbours of true tuples are not the samples' part."""
    k, size = block.tuples.shape[2], table.shape[2]
    if k == 2:
        return
    last = min(rows.stop, block.num_matched, size)
    if rows.start < last:
        table[:, : last - rows.start].diagonal(rows.start, dim1=1, dim2=2).div_(k)
    first = max(block.num_matched, rows.start)
    fixed = block.tuples[:, first : rows.stop][..., [m for m in range(k) if m != block.l]]
    sampled = table[:, first - rows.start :]
    # In a neighbour of a true tuple all entries but one are equal; its majority is among any two of the fixed.
    for candidate in (fixed[..., 0], fixed[..., 1]):
        agree = (fixed == candidate.unsqueeze(-1)).sum(-1)
        sampled.masked_fill_((agree == k - 1).unsqueeze(-1), 0.0)
        inside = (agree == k - 2) & (candidate < size)
        place = candidate.clamp(max=size - 1).unsqueeze(-1)
        kept = sampled.gather(2, place).masked_fill_(inside.unsqueeze(-1), 0.0)
        sampled.scatter_(2, place, kept)
