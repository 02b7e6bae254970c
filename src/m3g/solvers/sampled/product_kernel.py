"""Kernel of the circular variance represented by products over the views.

With a = c / (k² eps), where c is the factor of the cost (`Problem.factor`), centred views r_l and a standard normal
vector g of d features,

    exp(a |Σ_l r_l|²) = E_g Π_l exp(√(2a) ⟨g, r_l⟩)

(positive features, :cite:`scetbon2020`). Weighted samples g_1, …, g_s therefore represent the kernel by a non-negative
tensor of rank at most s. Given a sample, the views are independent: a sum over tuples is a product of k sums over
points, O(k n) per sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from m3g.costs.problem import vector_dtype
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.interfaces import SampledKernel
from m3g.solvers.sampled.log_kernel import LogKernel, ResultantKernel
from m3g.solvers.sampled.product_coupling import ProductCoupling
from m3g.solvers.sampled.recomputed_rows import Rows, chunk_rows, rows_at_once

# Sharpness (`LogKernel.sharpness`) above which the unit normal distributions of different tuples do not overlap. Tuples
# whose distributions are far from those of the centres then affect neither the samples nor the error estimate.
MAX_SHARPNESS = 10.0


def product_list(
    log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, per_centre: int, draws: Draws, anchors: Tensor
) -> ProductList:
    """Draw `per_centre` weighted samples g around every tuple of `centres` (b, r, k).

    The proposal q is the mixture of unit normal distributions at √(2a) Σ_l r_l of the centres, and the weights of the
    s = r · per_centre samples are N(g; 0, I) / (s q(g)). The log scalings and the anchors are not used, because every
    sample covers all tuples.
    """
    assert isinstance(log_kernel, ResultantKernel)
    component_means = log_kernel.resultant(centres).mul_(math.sqrt(log_kernel.strength))
    b, r, d = component_means.shape
    fields = draws.normal(b, per_centre, r, d, dtype=component_means.dtype)
    fields = fields.add_(component_means.unsqueeze(1)).reshape(b, per_centre * r, d)
    # log N(g; c) - log N(g; 0) = ⟨g, c⟩ - |c|² / 2 avoids a difference of large squares.
    offsets = component_means.square().sum(-1).unsqueeze(1) / -2
    step = chunk_rows(per_centre * r, b * r * component_means.element_size(), component_means.device)
    ratios = [
        torch.baddbmm(offsets, chunk, component_means.transpose(1, 2)).logsumexp(2) for chunk in fields.split(step, 1)
    ]
    log_weights = math.log(r) - torch.cat(ratios, 1).to(vector_dtype(component_means.device)) - math.log(per_centre * r)
    return ProductList(log_kernel, fields, log_weights, base=torch.zeros_like(log_kernel.shift))


@dataclass(frozen=True)
class ProductList(SampledKernel):
    """Kernel represented by weighted samples g.

    Attributes:
        fields: (b, s, d), the samples g.
        log_weights: (b, s).
        tables: the result of `product_tables` at the log scalings `base`; None before `with_base`.
    """

    log_kernel: ResultantKernel
    fields: Tensor
    log_weights: Tensor
    base: Tensor
    tables: Rows[tuple[Tensor, ...]] | None = None

    exact = False

    @property
    def sizes(self) -> list[int]:
        return list(self.log_kernel.sizes)

    def with_base(self, log_scaling: Tensor) -> ProductList:
        b, s, d = self.fields.shape
        step = rows_at_once(
            s,
            row_bytes=b * self.fields.element_size() * max(self.total, self.k * d),
            total_bytes=b * self.fields.element_size() * s * self.total,
            device=self.fields.device,
        )
        compute = partial(product_tables, self.log_kernel, self.fields, log_scaling)
        return replace(self, base=log_scaling, tables=Rows(compute, count=s, step=step, shared=True))

    def coupling_at(self, log_scaling: Tensor, mass: Tensor) -> ProductCoupling:
        assert self.tables is not None
        changes = (log_scaling - self.base).split(self.sizes, 1)
        columns = [change.exp().to(self.fields.dtype) for change in changes]
        sums, logs = [], []
        for rows, (*tables, log_scale) in self.tables:
            view_sums = [torch.bmm(table, column.unsqueeze(2)) for table, column in zip(tables, columns)]
            sums.append(torch.cat(view_sums, 2))
            logs.append(self.log_weights[:, rows] + log_scale + sums[-1].to(log_scaling.dtype).log().sum(2))
        log = self.tables.joined(logs)
        peak = log.amax(1, keepdim=True)
        weights = (log - peak).exp()
        factor = mass / weights.sum(1, keepdim=True)
        all_sums = self.tables.joined(sums)
        return ProductCoupling(self, weights * factor, columns, all_sums, log_factor=factor.log() - peak)

    def half_signs(self) -> list[Tensor]:
        """Return +1 for the first half of the samples and -1 for the second half, as a list of one tensor (b, s)."""
        sign = torch.ones_like(self.log_weights)
        sign[:, sign.shape[1] // 2 :] = -1.0
        return [sign]

    def untrusted_reasons(self) -> list[str]:
        if bool(self.log_kernel.sharpness() <= MAX_SHARPNESS):
            return []
        return ["form='products' may miss tuples, because epsilon is too small for its distributions to overlap"]


def product_tables(log_kernel: ResultantKernel, fields: Tensor, base: Tensor, rows: slice) -> tuple[Tensor, ...]:
    """Return the distributions of the views given the samples `rows`, at log scalings `base` (b, N).

    Returns k tables p_l(i | g) of shape (b, rows, n_l), and the sum over views of the logarithms of their normalising
    constants (b, rows).
    """
    wide, tables, log_scale = base.dtype, [], torch.zeros(1, 1, dtype=base.dtype, device=base.device)
    for l, scaling in enumerate(base.split(list(log_kernel.sizes), 1)):
        table = log_kernel.field_logits(l, fields[:, rows])
        table += scaling.to(table.dtype).unsqueeze(1)
        peak = table.amax(2, keepdim=True)
        table.sub_(peak).exp_()
        sums = table.sum(2, keepdim=True)
        tables.append(table.div_(sums))
        log_scale = log_scale + (peak.to(wide) + sums.to(wide).log()).squeeze(2)
    return (*tables, log_scale)
