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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import Coupling
from m3g.solvers.energies import Energies, pick, squared_sums
from m3g.solvers.precision import vector_dtype
from m3g.solvers.products import choose, transposed_times


@dataclass
class Block:
    """Rows with view l open. Entry (s, i) of the kernel is exp(log_weight[s] + …) · table[s, i], see `rebase`."""

    l: int
    tuples: Tensor  # (b, s, k); entry l is not used
    columns: Tensor  # (b, s, k-1): places of the other entries in the concatenation of all views
    log_rest: Tensor  # (b, s): log kernel of the fixed entries among themselves, and the log weight of the row
    num_matched: int
    table: Tensor  # (b, s, n_l): conditional distribution of the open view at the potentials `TupleList.base`
    log_scale: Tensor  # (b, s): what the rows of `table` were divided by


class TupleList:
    """Matched rows and sampled rows, with the sums a solver needs; see the module for what they are.

    Args:
        energies: log kernels.
        samples: tuples (b, s, k), each used once in every block.
        log_counts: (b, s, k), entry l being the log of the expected number of draws of the tuple's other entries.
    """

    def __init__(self, energies: Energies, samples: Tensor, log_counts: Tensor):
        self.energies = energies
        self.sizes = list(energies.sizes)
        self.k = len(self.sizes)
        self.starts = [sum(self.sizes[:l]) for l in range(self.k)]
        self.total = sum(self.sizes)
        self.num_samples = samples.shape[1]
        device = samples.device
        self.wide = vector_dtype(device)
        self.base = torch.zeros(samples.shape[0], self.total, dtype=self.wide, device=device)
        self.blocks = [self._block(l, samples, log_counts[..., l]) for l in range(self.k)]

    def _block(self, l: int, samples: Tensor, log_counts: Tensor) -> Block:
        k, device = self.k, samples.device
        num_matched = min(size for m, size in enumerate(self.sizes) if m != l)
        matched = torch.arange(num_matched, device=device).reshape(1, -1, 1).expand(samples.shape[0], -1, k).clone()
        matched[..., l].clamp_(max=self.sizes[l] - 1)
        # With two views every tuple is in both blocks, and nothing is left to sample.
        tuples = matched if k == 2 else torch.cat([matched, samples], 1)
        conditional = self.energies.conditional(l, tuples)
        log_rest = self.energies.rest(l, tuples)
        if k == 2:
            log_rest = log_rest - math.log(2)
        else:
            log_rest[:, num_matched:] -= log_counts + math.log(k)
        others = [m for m in range(k) if m != l]
        starts = torch.tensor([self.starts[m] for m in others], device=device)
        block = Block(l, tuples, tuples[..., others] + starts, log_rest, num_matched, conditional, log_rest)
        self._normalise(block)
        return block

    def rebase(self, log_scaling: Tensor) -> None:
        """Take these log scalings (b, N) into the tables, so that what is stored stays in the range of its type."""
        self.base = log_scaling
        for block in self.blocks:
            del block.table
            block.table = self.energies.conditional(block.l, block.tuples)
            self._normalise(block)

    def _normalise(self, block: Block) -> None:
        table = block.table
        table += self._part(self.base, block.l).to(table.dtype).unsqueeze(1)
        peak = table.amax(2, keepdim=True)
        table.sub_(peak).exp_()
        self._leave_out(block)
        sums = table.sum(2, keepdim=True)
        table.div_(sums.clamp_min(torch.finfo(table.dtype).tiny))
        block.log_scale = (peak.to(self.wide) + sums.to(self.wide).log()).squeeze(2)

    def _leave_out(self, block: Block) -> None:
        """Each tuple once: true tuples are in every block, neighbours of true tuples are not the samples' part."""
        if self.k == 2:
            return
        table, start, size = block.table, block.num_matched, self.sizes[block.l]
        shared = min(start, size)
        table[:, :shared].diagonal(dim1=1, dim2=2).div_(self.k)
        others = [m for m in range(self.k) if m != block.l]
        fixed = block.tuples[:, start:][..., others]
        # In a neighbour of a true tuple all entries but one are equal; its majority is among any two of the fixed.
        for candidate in (fixed[..., 0], fixed[..., 1]):
            agree = (fixed == candidate.unsqueeze(-1)).sum(-1)
            table[:, start:].masked_fill_((agree == self.k - 1).unsqueeze(-1), 0.0)
            inside = (agree == self.k - 2) & (candidate < size)
            place = candidate.clamp(max=size - 1).unsqueeze(-1)
            kept = table[:, start:].gather(2, place).masked_fill_(inside.unsqueeze(-1), 0.0)
            table[:, start:].scatter_(2, place, kept)

    def _part(self, vector: Tensor, l: int) -> Tensor:
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
        logs = []
        for block in self.blocks:
            fixed = pick(log_scaling, block.columns).sum(-1)
            logs.append(block.log_rest + block.log_scale + fixed)
        peak = torch.stack([log.amax(1) for log in logs]).amax(0).unsqueeze(1)
        rows, columns, sums = [], [], []
        for block, log in zip(self.blocks, logs):
            dtype = block.table.dtype
            rows.append((log - peak).exp().to(dtype))
            scale = (self._part(log_scaling, block.l) - self._part(self.base, block.l)).exp().to(dtype)
            columns.append(scale)
            sums.append(torch.bmm(block.table, scale.unsqueeze(2)).squeeze(2))
        found = sum((row.to(self.wide) * total).sum(1, keepdim=True) for row, total in zip(rows, sums))
        factor = mass / found
        scaled = [row * factor.to(row.dtype) for row in rows]
        return ListedCoupling(self, scaled, columns, sums, log_factor=factor.log() - peak)


@dataclass
class ListedCoupling(Coupling):
    """Entry (s, i) of block l is rows_l[s] · table_l[s, i] · columns_l[i]; see `m3g.costs.Coupling`.

    `tilt` (one factor per row and per column of each block) multiplies the entries by row factor + column factor;
    it makes signed measures, the derivatives of couplings.
    """

    listed: TupleList
    row_scales: list[Tensor]
    column_scales: list[Tensor]
    row_sums: list[Tensor]
    log_factor: Tensor
    tilt: tuple[list[Tensor], list[Tensor]] | None = None

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.listed.sizes

    def weights(self, block: Block) -> Tensor:
        """Total of every row (b, s), in float64."""
        return self._times(block, None).to(self.listed.wide).squeeze(2)

    def _times(self, block: Block, matrix: Tensor | None) -> Tensor:
        """Block @ matrix: (b, n_l, d) -> (b, s, d); None stands for ones."""
        l = block.l
        row, column = self.row_scales[l].unsqueeze(2), self.column_scales[l].unsqueeze(2)
        if matrix is None and self.tilt is None:
            return row * self.row_sums[l].unsqueeze(2)
        scaled = column if matrix is None else column * matrix
        plain = torch.bmm(block.table, scaled)
        if self.tilt is None:
            return row * plain
        tilted = torch.bmm(block.table, self.tilt[1][l].unsqueeze(2) * scaled)
        return row * (self.tilt[0][l].unsqueeze(2) * plain + tilted)

    def _transposed_times(self, block: Block, matrix: Tensor | None) -> Tensor:
        """Blockᵀ @ matrix: (b, s, d) -> (b, n_l, d); None stands for ones."""
        l = block.l
        row, column = self.row_scales[l].unsqueeze(2), self.column_scales[l].unsqueeze(2)
        scaled = row if matrix is None else row * matrix
        if self.tilt is None:
            return column * transposed_times(block.table, scaled)
        both = transposed_times(block.table, torch.cat([self.tilt[0][l].unsqueeze(2) * scaled, scaled], 2))
        tilted, plain = both.chunk(2, 2)
        return column * (tilted + self.tilt[1][l].unsqueeze(2) * plain)

    def entries(self, l: int) -> Tensor:
        """Block l in full: (b, s, n_l)."""
        out = self.listed.blocks[l].table * self.row_scales[l].unsqueeze(2) * self.column_scales[l].unsqueeze(1)
        if self.tilt is not None:
            out *= self.tilt[0][l].unsqueeze(2) + self.tilt[1][l].unsqueeze(1)
        return out

    def marginals(self) -> Tensor:
        """All marginals, one after the other: (b, N), in float64."""
        listed = self.listed
        out = torch.zeros_like(listed.base)
        for block in listed.blocks:
            add(out, self.weights(block), block.columns)
            listed._part(out, block.l).add_(self._transposed_times(block, None).squeeze(2))
        return out

    def sample_weights(self) -> Tensor:
        """Total of the rows of every sample, over all blocks: (b, s)."""
        return torch.stack([self.weights(block)[:, block.num_matched :] for block in self.listed.blocks]).sum(0)

    def derivative(self, log_change: Tensor) -> Tensor:
        """How the marginals answer to a small change (b, N) of the log scalings: the Hessian of the dual."""
        return self.changed(log_change, None).marginals()

    def changed(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> ListedCoupling:
        """The derivative of the coupling in a direction of log scalings, and of weights of rows."""
        listed, dtype = self.listed, self.row_scales[0].dtype
        rows, columns = [], []
        for block in listed.blocks:
            fixed = pick(log_change, block.columns).sum(-1)
            rows.append((fixed if row_factors is None else fixed + row_factors[block.l]).to(dtype))
            columns.append(listed._part(log_change, block.l).to(dtype))
        return ListedCoupling(
            listed, self.row_scales, self.column_scales, self.row_sums, self.log_factor, tilt=(rows, columns)
        )

    def marginal(self, l: int) -> Tensor:
        return self.listed._part(self.marginals(), l).to(self.row_scales[0].dtype)

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs([(l, m)])[l, m]

    def pairs(self, edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        """Joint marginals (b, n_l, n_m) of the given pairs of views."""
        listed, sizes = self.listed, self.listed.sizes
        out = {}
        for l, m in edges:
            first = torch.zeros(listed.base.shape[0], sizes[l] * sizes[m], dtype=listed.wide, device=listed.base.device)
            out[l, m] = first
        for block in listed.blocks:
            full = self.entries(block.l) if any(block.l in edge for edge in edges) else torch.empty(0)
            totals = self.weights(block)
            for l, m in edges:
                s_l, s_m = block.tuples[..., l], block.tuples[..., m]
                if block.l == l:
                    out[l, m] += put(full, s_m, sizes[m]).transpose(1, 2).reshape(out[l, m].shape)
                elif block.l == m:
                    out[l, m] += put(full, s_l, sizes[l]).reshape(out[l, m].shape)
                else:
                    add(out[l, m], totals, (s_l * sizes[m] + s_m).unsqueeze(-1))
        dtype = self.row_scales[0].dtype
        return {(l, m): flat.reshape(-1, sizes[l], sizes[m]).to(dtype) for (l, m), flat in out.items()}

    def pull(self, points: Tensor) -> Tensor:
        """m_l x_l + Σ_{m ≠ l} P_lm x_m = Σ_t P(t) Σ_m x_m[t_m] over the tuples through each point, in O(k s n d)."""
        listed = self.listed
        out = torch.zeros_like(points)
        for block in listed.blocks:
            own = listed._part(points, block.l)
            fixed = pick(points, block.columns[..., 0])
            for position in range(1, listed.k - 1):
                fixed = fixed + pick(points, block.columns[..., position])
            whole = self._times(block, own) + self._times(block, None) * fixed
            for position in range(listed.k - 1):
                add_rows(out, whole, block.columns[..., position])
            there = self._transposed_times(block, fixed) + self._transposed_times(block, None) * own
            listed._part(out, block.l).add_(there)
        return out

    def weighted_pull(self, points: Tensor, weight: Callable[[Tensor], Tensor]) -> Tensor:
        """As `pull`, every tuple times w(|mean|²) of its points."""
        listed = self.listed
        out = torch.zeros_like(points)
        for block in listed.blocks:
            own = listed._part(points, block.l)
            fixed = pick(points, block.columns).sum(2)
            entries = self.entries(block.l) * weight(squared_sums(fixed / listed.k, own / listed.k))
            whole = torch.bmm(entries, own) + entries.sum(2, keepdim=True) * fixed
            for position in range(listed.k - 1):
                add_rows(out, whole, block.columns[..., position])
            there = transposed_times(entries, fixed) + entries.sum(1).unsqueeze(2) * own
            listed._part(out, block.l).add_(there)
        return out

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Tuples (b, count, k) of the coupling, an equal share from each block."""
        out = []
        for block in self.listed.blocks:
            share = count // self.listed.k + (block.l < count % self.listed.k)
            steps = self.weights(block).cumsum(1)
            offset = torch.rand(steps.shape[0], 1, generator=generator, device=steps.device)
            levels = (torch.arange(share, device=steps.device) + offset) / share
            place = torch.searchsorted(steps, levels.to(steps.dtype) * steps[:, -1:]).clamp_(max=steps.shape[1] - 1)
            tuples = pick(block.tuples, place)
            weighted = block.table * self.column_scales[block.l].unsqueeze(1)
            tuples[..., block.l] = choose(weighted, place, generator)
            out.append(tuples)
        return torch.cat(out, 1)

    def rows(self) -> list[tuple[slice, Tensor]]:
        """The full tensor, as one slab."""
        listed, sizes = self.listed, self.listed.sizes
        b = listed.base.shape[0]
        out = torch.zeros(b, math.prod(sizes), dtype=listed.wide, device=listed.base.device)
        for block in listed.blocks:
            place = torch.zeros(b, block.tuples.shape[1], sizes[block.l], dtype=torch.long, device=out.device)
            for m, size in enumerate(sizes):
                here = block.tuples[..., m : m + 1]
                place = place * size + (torch.arange(size, device=out.device) if m == block.l else here)
            out.scatter_add_(1, place.reshape(b, -1), self.entries(block.l).reshape(b, -1).to(out.dtype))
        return [(slice(0, sizes[0]), out.reshape(b, *sizes).to(self.row_scales[0].dtype))]


def add(out: Tensor, values: Tensor, index: Tensor) -> None:
    """Add values (b, s) to out (b, N) at every place of index (b, s, j)."""
    spread = values.unsqueeze(-1).expand(index.shape).reshape(index.shape[0], -1)
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
