"""The kernel of the circular variance as a sum of products over views.

With a = factor / (k² eps), centred views r_l and a standard normal g,

    exp(a |Σ_l r_l|²) = E_g Π_l exp(√(2a) ⟨g, r_l⟩),

so that samples g_s with importance weights make the kernel a tensor of rank s with non-negative factors. Given g_s the
views are independent: every sum over tuples is a product of k sums over points, O(k n) per sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import Coupling
from m3g.solvers.energies import ResultantEnergies
from m3g.solvers.precision import vector_dtype


def draw_fields(
    energies: ResultantEnergies, centres: Tensor, each: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Samples g (b, s, d), `each` around every centre (b, r, k), and their log weights (b, s).

    The proposal is the mixture of unit normals at √(2a) Σ_l r_l of the centres; weights are N(g; 0, 1) / (s q(g)).
    """
    places = energies.resultant(centres) * math.sqrt(energies.strength)
    b, r, d = places.shape
    noise = torch.randn(b, each, r, d, generator=generator, device=places.device, dtype=places.dtype)
    fields = (places.unsqueeze(1) + noise).reshape(b, each * r, d)
    # log N(g; c) - log N(g; 0) = ⟨g, c⟩ - |c|² / 2: no difference of large squares.
    ratio = torch.bmm(fields, places.transpose(1, 2)) - places.square().sum(-1).unsqueeze(1) / 2
    return fields, math.log(r) - ratio.logsumexp(2).to(vector_dtype(places.device)) - math.log(each * r)


class ProductList:
    """Samples g as rows, with the sums a solver needs; `tables` (b, s, n_l) hold p(i_l | g) at log scalings `base`."""

    def __init__(self, energies: ResultantEnergies, fields: Tensor, log_weights: Tensor):
        self.energies = energies
        self.fields = fields
        self.log_weights = log_weights
        self.sizes = list(energies.sizes)
        self.k = len(self.sizes)
        self.total = sum(self.sizes)
        self.wide = vector_dtype(fields.device)
        self.tables: list[Tensor] = []

    def rebase(self, log_scaling: Tensor) -> None:
        """Take these log scalings (b, N) into the tables, so that what is stored stays in the range of its type."""
        self.base = log_scaling
        self.tables = []
        self.log_scale = self.log_weights
        for l, scaling in enumerate(log_scaling.split(self.sizes, 1)):
            table = self.energies.field_logits(l, self.fields)
            table += scaling.to(table.dtype).unsqueeze(1)
            peak = table.amax(2, keepdim=True)
            table.sub_(peak).exp_()
            sums = table.sum(2, keepdim=True)
            self.tables.append(table.div_(sums))
            self.log_scale = self.log_scale + (peak.to(self.wide) + sums.to(self.wide).log()).squeeze(2)

    def at(self, log_scaling: Tensor, mass: Tensor) -> ProductCoupling:
        """The coupling of these log scalings (b, N), scaled to the given mass (b, 1)."""
        columns, sums, log = [], [], self.log_scale
        for table, change in zip(self.tables, (log_scaling - self.base).split(self.sizes, 1)):
            columns.append(change.exp().to(table.dtype))
            sums.append(torch.bmm(table, columns[-1].unsqueeze(2)).squeeze(2))
            log = log + sums[-1].to(self.wide).log()
        peak = log.amax(1, keepdim=True)
        rows = (log - peak).exp()
        factor = mass / rows.sum(1, keepdim=True)
        return ProductCoupling(self, rows * factor, columns, sums, log_factor=factor.log() - peak)

    def halves(self) -> list[Tensor]:
        """+1 on the first half of the samples, -1 on the second: one tensor (b, s)."""
        sign = torch.ones_like(self.log_weights)
        sign[:, sign.shape[1] // 2 :] = -1.0
        return [sign]


@dataclass
class ProductCoupling(Coupling):
    """P(t) = Σ_s weights[s] Π_l p_l(t_l | s), p_l = tables_l · columns_l / sums_l; see `m3g.costs.Coupling`.

    `tilt`, a factor per row and one per point (b, N), multiplies the terms by row factor + Σ_l point factor(t_l); it
    makes signed measures, the derivatives of couplings.
    """

    listed: ProductList
    row_weights: Tensor
    columns: list[Tensor]
    sums: list[Tensor]
    log_factor: Tensor
    tilt: tuple[Tensor, list[Tensor]] | None = None

    @property
    def sizes(self) -> list[int]:  # type: ignore[override]
        return self.listed.sizes

    def sample_weights(self) -> Tensor:
        return self.row_weights

    def _mean(self, l: int, values: Tensor) -> Tensor:
        """E[values(i_l) | s]: (b, n_l, d) -> (b, s, d)."""
        return torch.bmm(self.listed.tables[l], self.columns[l].unsqueeze(2) * values) / self.sums[l].unsqueeze(2)

    def _gather(self, l: int, values: Tensor) -> Tensor:
        """Σ_s weights[s] p_l(i | s) values[s]: (b, s, d) -> (b, n_l, d)."""
        share = (self.row_weights / self.sums[l]).to(values.dtype).unsqueeze(2)
        return self.columns[l].unsqueeze(2) * transposed_times(self.listed.tables[l], share * values)

    def marginals(self) -> Tensor:
        """All marginals, one after the other: (b, N), in float64."""
        dtype = self.columns[0].dtype
        ones = torch.ones_like(self.sums[0]).unsqueeze(2)
        if self.tilt is None:
            parts = [self._gather(l, ones) for l in range(self.listed.k)]
        else:
            rows, points = self.tilt
            means = [self._mean(l, points[l].unsqueeze(2)) for l in range(self.listed.k)]
            total = rows.to(dtype).unsqueeze(2) + torch.stack(means).sum(0)
            parts = []
            for l, point in enumerate(points):
                both = self._gather(l, torch.cat([total - means[l], ones], 2))
                parts.append(both[..., :1] + both[..., 1:] * point.unsqueeze(2))
        return torch.cat(parts, 1).squeeze(2).to(self.listed.wide)

    def derivative(self, log_change: Tensor) -> Tensor:
        """How the marginals answer to a small change (b, N) of the log scalings: the Hessian of the dual."""
        return self.changed(log_change, None).marginals()

    def changed(self, log_change: Tensor, row_factors: Sequence[Tensor] | None) -> ProductCoupling:
        """The derivative of the coupling in a direction of log scalings, and of weights of rows."""
        points = [part.to(self.columns[0].dtype) for part in log_change.split(self.sizes, 1)]
        rows = torch.zeros_like(self.row_weights) if row_factors is None else row_factors[0]
        tilt = (rows, points)
        return ProductCoupling(self.listed, self.row_weights, self.columns, self.sums, self.log_factor, tilt)

    def pull(self, points: Tensor) -> Tensor:
        """m_l x_l + Σ_{m ≠ l} P_lm x_m for the points of all views, in O(k s n d)."""
        k, views = self.listed.k, points.split(self.sizes, 1)
        means = [self._mean(l, view) for l, view in enumerate(views)]
        mean = torch.stack(means).sum(0)
        marginals = self.marginals().to(points.dtype).split(self.sizes, 1)
        if self.tilt is None:
            sums = [self._gather(l, mean - means[l]) for l in range(k)]
        else:
            rows, factors = self.tilt
            tilts = [self._mean(l, factor.unsqueeze(2)) for l, factor in enumerate(factors)]
            covariances = [
                self._mean(l, factors[l].unsqueeze(2) * view) - tilts[l] * means[l] for l, view in enumerate(views)
            ]
            total = rows.to(points.dtype).unsqueeze(2) + torch.stack(tilts).sum(0)
            covariance = torch.stack(covariances).sum(0)
            sums = []
            for l in range(k):
                others = mean - means[l]
                plain = self._gather(l, (total - tilts[l]) * others + covariance - covariances[l])
                sums.append(plain + factors[l].unsqueeze(2) * self._gather(l, others))
        return torch.cat([s + m.unsqueeze(2) * view for s, m, view in zip(sums, marginals, views)], 1)

    def marginal(self, l: int) -> Tensor:
        return self.marginals().split(self.sizes, 1)[l].to(self.columns[0].dtype)

    def _conditional(self, l: int) -> Tensor:
        """p_l(i | s): (b, s, n_l)."""
        return self.listed.tables[l] * self.columns[l].unsqueeze(1) / self.sums[l].unsqueeze(2)

    def pair(self, l: int, m: int) -> Tensor:
        return self.pairs([(l, m)])[l, m]

    def pairs(self, edges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        """Joint marginals (b, n_l, n_m) of the given pairs of views."""
        out = {}
        for l in sorted({l for l, _ in edges}):
            weighted = self._conditional(l) * self.row_weights.to(self.columns[l].dtype).unsqueeze(2)
            for m in (m for first, m in edges if first == l):
                out[l, m] = torch.bmm(weighted.transpose(1, 2), self._conditional(m))
        return out

    def rows(self) -> list[tuple[slice, Tensor]]:
        """The full tensor, as one slab."""
        b, out = self.row_weights.shape[0], self.row_weights.to(self.columns[0].dtype).unsqueeze(1)
        for l in range(self.listed.k - 1):
            out = (out.unsqueeze(2) * self._conditional(l).transpose(1, 2).unsqueeze(1)).flatten(1, 2)
        return [(slice(0, self.sizes[0]), torch.bmm(out, self._conditional(self.listed.k - 1)).view(b, *self.sizes))]

    def draw(self, count: int, generator: torch.Generator | None) -> Tensor:
        """Tuples (b, count, k) of the coupling."""
        device = self.row_weights.device
        steps = self.row_weights.cumsum(1)
        offset = torch.rand(steps.shape[0], 1, generator=generator, device=device)
        levels = (torch.arange(count, device=device) + offset) / count
        place = torch.searchsorted(steps, levels.to(steps.dtype) * steps[:, -1:]).clamp_(max=steps.shape[1] - 1)
        return torch.stack([choose(self._conditional(l), place, generator) for l in range(self.listed.k)], -1)


def transposed_times(table: Tensor, values: Tensor) -> Tensor:
    """Tᵀ V for (b, s, n) and (b, s, d), written as (Vᵀ T)ᵀ: with few columns ten times as fast on a CPU."""
    return torch.bmm(values.transpose(1, 2), table).transpose(1, 2)


def choose(tables: Tensor, rows: Tensor, generator: torch.Generator | None) -> Tensor:
    """One point (b, c) from each of the given rows (b, c) of unnormalised distributions (b, s, n)."""
    steps = tables.gather(1, rows.unsqueeze(2).expand(-1, -1, tables.shape[2])).cumsum(2)
    level = torch.rand(*rows.shape, 1, generator=generator, device=rows.device).to(steps.dtype)
    return torch.searchsorted(steps, level * steps[..., -1:]).clamp_(max=tables.shape[2] - 1).squeeze(2)
