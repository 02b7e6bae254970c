"""Coupling of a kernel of products over the views (product_kernel.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.interfaces import SampledCoupling
from m3g.solvers.sampled.recomputed_rows import (
    Rows,
    draw_from_chunk,
    draw_from_rows,
    row_chunks,
    systematic_draws,
    transposed_times,
)

if TYPE_CHECKING:
    from m3g.solvers.sampled.product_kernel import ProductList


@dataclass
class Samples:
    """Some samples of a coupling, P(t) = Σ_s weights[s] Π_l p_l(t_l | s) with p_l = tables_l · columns_l / sums_l.

    Attributes:
        rows: indices of the samples.
        tables: k tensors (b, s, n_l), from `product_tables`.
        columns: k tensors (b, n_l), the scalings relative to those absorbed in the tables.
        sums: (b, s, k), sums over points of tables times columns.
        weights: (b, s), the mass of the samples.
    """

    rows: slice
    tables: list[Tensor]
    columns: list[Tensor]
    sums: Tensor
    weights: Tensor

    def mean(self, l: int, values: Tensor) -> Tensor:
        """Return E[values(i_l) | s]: (b, n_l, d) -> (b, s, d)."""
        return torch.bmm(self.tables[l], self.columns[l].unsqueeze(2) * values).div_(self.sums[..., l : l + 1])

    def gather(self, l: int, values: Tensor) -> Tensor:
        """Return Σ_s weights[s] p_l(i | s) values[s]: (b, s, d) -> (b, n_l, d)."""
        scaled = (self.weights / self.sums[..., l]).to(values.dtype).unsqueeze(2)
        return self.columns[l].unsqueeze(2) * transposed_times(self.tables[l], scaled * values)

    def conditional(self, l: int) -> Tensor:
        """Return p_l(i | s): (b, s, n_l)."""
        return (self.tables[l] * self.columns[l].unsqueeze(1)).div_(self.sums[..., l : l + 1])


@dataclass
class ProductCoupling(SampledCoupling):
    """Coupling of a `ProductList`; see `m3g.costs.Coupling` for the interface and `Samples` for the formula.

    `tilt` consists of row factors (b, s) and k tensors of point factors (b, n_l). If it is given, the term of sample s
    and tuple t is also multiplied by row[s] + Σ_l point_l[t_l]. The result is a signed measure: the derivative of a
    coupling. Only `marginal`, `marginals` and `pull` support it.
    """

    kernel: ProductList
    row_weights: Tensor
    columns: list[Tensor]
    sums: Tensor
    log_factor: Tensor
    tilt: tuple[Tensor, list[Tensor]] | None = None

    dense_pairs = False  # a pair marginal takes O(n² s) operations, a product with the Hessian O(n s) per view

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.kernel.sizes

    @property
    def _tables(self) -> Rows[tuple[Tensor, ...]]:
        assert self.kernel.tables is not None
        return self.kernel.tables

    def sample_weights(self) -> Tensor:
        return self.row_weights

    def _samples(self, *, features: int = 0) -> Iterator[Samples]:
        """Yield all samples in chunks; with `features`, the chunks are small enough for vectors of this length."""
        # Up to 4 k such vectors per sample are in memory: means, covariances, and intermediate copies of both.
        row_bytes = 4 * features * sum(column.shape[0] * column.element_size() for column in self.columns)
        for rows, (*tables, _) in row_chunks(self._tables, row_bytes) if features else self._tables:
            yield Samples(rows, tables, self.columns, self.sums[:, rows], self.row_weights[:, rows])

    def marginals(self) -> Tensor:
        """Return all marginals, concatenated: (b, N), in the dtype of the log scalings."""
        out = torch.zeros_like(self.kernel.base)
        for samples in self._samples():
            out += torch.cat(self._chunk_marginals(samples), 1).squeeze(2)
        return self._tables.summed(out)

    def _chunk_marginals(self, samples: Samples) -> list[Tensor]:
        """Return the contributions (b, n_l, 1) of some samples to the marginal of every view."""
        ones = torch.ones_like(samples.sums[..., :1])
        if self.tilt is None:
            return [samples.gather(l, ones) for l in range(self.kernel.k)]
        rows, points = self.tilt
        means = [samples.mean(l, points[l].unsqueeze(2)) for l in range(self.kernel.k)]
        total = rows[:, samples.rows].to(ones.dtype).unsqueeze(2) + torch.stack(means).sum(0)
        parts = []
        for l, point in enumerate(points):
            both = samples.gather(l, torch.cat([total - means[l], ones], 2))
            parts.append(both[..., :1] + both[..., 1:] * point.unsqueeze(2))
        return parts

    def directional_derivative(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> ProductCoupling:
        points = [part.to(self.columns[0].dtype) for part in log_change.split(self.sizes, 1)]
        rows = torch.zeros_like(self.row_weights) if row_factors is None else row_factors[0]
        tilt = (rows, points)
        return ProductCoupling(self.kernel, self.row_weights, self.columns, self.sums, self.log_factor, tilt)

    def pull(self, points: Tensor) -> Tensor:
        """Return P_l x_l + Σ_{m ≠ l} P_lm x_m for every view l, in O(k s n d); see `Coupling.pull`."""
        views = points.split(self.sizes, 1)
        out = torch.zeros_like(points)
        for samples in self._samples(features=points.shape[-1]):
            marginals = torch.cat(self._chunk_marginals(samples), 1).to(points.dtype)
            out += torch.cat(self._chunk_pulls(samples, views), 1).addcmul_(marginals, points)
        return self._tables.summed(out)

    def _chunk_pulls(self, samples: Samples, views: Sequence[Tensor]) -> list[Tensor]:
        """Return the contributions of some samples to Σ_{m ≠ l} P_lm x_m, for every view l."""
        means = [samples.mean(l, view) for l, view in enumerate(views)]
        mean = torch.stack(means).sum(0)
        if self.tilt is None:
            return [samples.gather(l, mean - means[l]) for l in range(len(views))]
        rows, factors = self.tilt
        tilts = [samples.mean(l, factor.unsqueeze(2)) for l, factor in enumerate(factors)]
        covariances = [
            samples.mean(l, factors[l].unsqueeze(2) * view) - tilts[l] * means[l] for l, view in enumerate(views)
        ]
        total = rows[:, samples.rows].to(mean.dtype).unsqueeze(2) + torch.stack(tilts).sum(0)
        covariance = torch.stack(covariances).sum(0)
        sums = []
        for l, factor in enumerate(factors):
            others = mean - means[l]
            plain = samples.gather(l, (total - tilts[l]) * others + covariance - covariances[l])
            sums.append(plain + factor.unsqueeze(2) * samples.gather(l, others))
        return sums

    def marginal(self, l: int) -> Tensor:
        marginal: Tensor = self.marginals().split(self.sizes, 1)[l]
        return marginal.to(self.columns[0].dtype)

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs([(l, m)])[l, m]

    def pairs(self, edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        """Return the pair marginals (b, n_l, n_m) of the given pairs of views."""
        out: dict[tuple[int, int], Tensor] = {}
        for samples in self._samples():
            for l in sorted({l for l, _ in edges}):
                weighted = samples.conditional(l) * samples.weights.to(self.columns[l].dtype).unsqueeze(2)
                for m in (m for first, m in edges if first == l):
                    pair = torch.bmm(weighted.transpose(1, 2), samples.conditional(m))
                    out[l, m] = out[l, m] + pair if (l, m) in out else pair
        return {edge: self._tables.summed(pair) for edge, pair in out.items()}

    def rows(self) -> list[tuple[slice, Tensor]]:
        """Return the full tensor as one slab."""
        k, b = self.kernel.k, self.row_weights.shape[0]
        total: Tensor | float = 0.0
        for samples in self._samples():
            out = samples.weights.to(self.columns[0].dtype).unsqueeze(1)
            for l in range(k - 1):
                out = (out.unsqueeze(2) * samples.conditional(l).transpose(1, 2).unsqueeze(1)).flatten(1, 2)
            total = total + torch.bmm(out, samples.conditional(k - 1)).view(b, *self.sizes)
        assert isinstance(total, Tensor)
        return [(slice(0, self.sizes[0]), self._tables.summed(total))]

    def draw(self, count: int, draws: Draws) -> Tensor:
        """Draw tuples (b, count, k) from the coupling."""
        b, k = self.row_weights.shape[0], self.kernel.k
        chosen = systematic_draws(self.row_weights, count, draws)
        levels = [draws.uniform(b, count) for _ in range(k)]
        if self._tables.stored is not None and self._tables.sharing is None:
            tables = zip(self._tables.stored, self.columns, levels)
            return torch.stack([draw_from_rows(table, column, chosen, level) for table, column, level in tables], -1)
        out = chosen.new_zeros(b, count, k)
        for samples in self._samples():
            for l, (table, column) in enumerate(zip(samples.tables, samples.columns)):
                draw_from_chunk(out[..., l], table, column, chosen - samples.rows.start, levels[l])
        return self._tables.summed(out)
