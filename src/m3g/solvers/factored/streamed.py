"""Contraction in the log domain, for an epsilon so small that the kernels exceed the range of float64.

The exponents of all n^k tuples are computed slab by slab, so that nothing overflows. An evaluation takes n^k
exponentials instead of n^k multiply-adds, so only small problems are solved this way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.costs import along
from m3g.costs.coupling import Edge, pair_sums
from m3g.solvers.shared.couplings import slabs
from m3g.solvers.shared.dual import Contracted, Contraction


class RangeError(ValueError):
    """Epsilon is too small for the range of float64, and the problem cannot be solved in the log domain."""


class RangeWarning(UserWarning):
    """Epsilon is too small for the range of float64; the solver uses the log domain, which is slower."""


class StreamedContraction(Contraction):
    """Contraction of log kernels {(l, m): (b, n_l, n_m)} on any graph of views, at log scalings."""

    in_logs = True

    def __init__(self, log_kernels: dict[Edge, Tensor], sizes: Sequence[int]):
        self.log_kernels = log_kernels
        self.sizes = list(sizes)
        example = next(iter(log_kernels.values()))
        self.slabs = slabs(self.sizes, example.shape[0], example.element_size())

    def evaluate(self, log_scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        """Return the marginals of P with view 0 scaled to its target; `lead` is the log scaling of view 0."""
        k = len(self.sizes)
        slab_pairs: list[dict[Edge, Tensor]] = []
        leads: list[Tensor] = []
        rest = along(log_scalings[1], (1,), k)
        for l in range(2, k):
            rest = rest + along(log_scalings[l], (l,), k)
        for (l, m), matrix in self.log_kernels.items():
            if l > 0:
                rest = rest + along(matrix, (l, m), k)
        for rows in self.slabs:
            exponent = rest.expand(-1, rows.stop - rows.start, *self.sizes[1:]).clone()
            for (l, m), matrix in self.log_kernels.items():
                if l == 0:
                    exponent += along(matrix[:, rows], (l, m), k)
            flat = exponent.flatten(2)
            lead = target[:, rows].log() - flat.logsumexp(2)
            flat.add_(lead.unsqueeze(-1)).exp_()
            leads.append(lead)
            slab_pairs.append(pair_sums(exponent, list(range(k))))
        pairs = {
            edge: torch.cat([part[edge] for part in slab_pairs], 1)
            if edge[0] == 0
            else torch.stack([part[edge] for part in slab_pairs]).sum(0)
            for edge in slab_pairs[0]
        }
        others = torch.cat([pairs[0, l] for l in range(1, k)], 2).sum(1)
        return Contracted(pairs, others, torch.cat(leads, 1))
