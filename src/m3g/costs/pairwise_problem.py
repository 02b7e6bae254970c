"""Problems whose cost is a sum over pairs of views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor

from m3g.costs.contraction import additive
from m3g.costs.coupling import Coupling, Edge, all_edges
from m3g.costs.problem import Problem, vector_dtype

AnyPairwise = TypeVar("AnyPairwise", bound="PairwiseProblem")


@dataclass(frozen=True)
class LogKernels:
    """Logarithms of the pair kernels: -C / eps = Σ_(l,m) exponent_lm[i_l, i_m] - Σ_l shift_l[i_l] / eps.

    Terms of one view do not change the optimal coupling. They are moved to `shift`, so that the exponents are small.

    Attributes:
        groups: exponents in the order of the edges, either as one tensor (edges · b, n, n) with the batch of the first
            edge first, or as one tensor (b, n_l, n_m) per edge.
        shift: (b, N) with N = n_1 + … + n_k, in float64 if the device supports it. The potentials are eps · h + shift
            for log scalings h. None means 0.
    """

    groups: list[Tensor]
    shift: Tensor | None


class PairwiseProblem(Problem):
    """Problem whose cost is a sum over the edges of a graph of views, C = Σ_(l,m) D_lm[i_l, i_m].

    Args:
        edges: the pairs of views (l, m), l < m, with a cost.
        costs: one matrix (b, n_l, n_m) per edge, or all of them stacked (b, edges, n, n).
        sizes: n_1 … n_k.
        batch: batch shape of the user's tensors; its product is b.
    """

    kernel_form = "pairs"
    stacked = False

    def __init__(
        self,
        edges: Sequence[Edge],
        costs: Tensor | Sequence[Tensor],
        *,
        sizes: Sequence[int],
        batch: Sequence[int],
    ):
        self.edges = list(edges)
        self.sizes = tuple(sizes)
        self.batch = tuple(batch)
        self.stacked = isinstance(costs, Tensor)
        self.tensors = (costs,) if isinstance(costs, Tensor) else tuple(costs)

    def matrices(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return one matrix (b, n_l, n_m) per edge from tensors laid out like `self.tensors`."""
        return tensors[0].unbind(1) if self.stacked else tensors

    def select(self: AnyPairwise, rows: Sequence[Tensor]) -> AnyPairwise:
        chosen = [
            matrix.index_select(-2, rows[l]).index_select(-1, rows[m])
            for (l, m), matrix in zip(self.edges, self.matrices(self.tensors))
        ]
        out = self.with_tensors(chosen)
        out.stacked = False
        out.sizes = tuple(map(len, rows))
        return out

    def log_kernels(self, epsilon: float, dtype: torch.dtype) -> LogKernels:
        """Return the exponents -D_lm / eps with their row and column means moved to the shift."""
        costs = [self.tensors[0].transpose(0, 1).flatten(0, 1)] if self.stacked else list(self.tensors)
        groups, all_rows, all_columns = [], [], []
        for cost in costs:
            cost = cost.detach().to(dtype)
            rows = cost.mean(-1, keepdim=True)
            columns = cost.mean(-2, keepdim=True) - rows.mean(-2, keepdim=True)
            groups.append((cost - rows).sub_(columns).mul_(-1 / epsilon))
            all_rows.append(rows)
            all_columns.append(columns)
        # new_zeros inherits the batch dimension of the costs under torch.vmap.
        shift = costs[0].new_zeros(self.num_batch, sum(self.sizes), dtype=vector_dtype(self.device))
        parts = shift.split(list(self.sizes), 1)
        row_means, column_means = self.by_edge(all_rows), self.by_edge(all_columns)
        for l, m in self.edges:
            parts[l].add_(row_means[l, m].squeeze(-1))
            parts[m].add_(column_means[l, m].squeeze(-2))
        return LogKernels(groups, shift)

    def by_edge(self, groups: Sequence[Tensor]) -> dict[Edge, Tensor]:
        """Split groups laid out like `LogKernels.groups` into one tensor (b, ...) per edge."""
        b = self.num_batch
        parts = ([group] if len(group) == b else group.split(b) for group in groups)
        return dict(zip(self.edges, chain.from_iterable(parts)))

    def scaled(self: AnyPairwise, weight: float) -> AnyPairwise:
        return self.with_tensors([weight * tensor for tensor in self.tensors])

    def slab(self, rows: slice) -> Tensor:
        kernels = self.log_kernels(1.0, self.dtype)
        exponents = self.by_edge(kernels.groups)
        example = next(iter(exponents.values()))
        shift = example.new_zeros(self.num_batch, sum(self.sizes)) if kernels.shift is None else kernels.shift
        singles = list(shift.to(self.dtype).split(list(self.sizes), 1))
        singles[0] = singles[0][:, rows]
        pairs = {}
        for l, m in all_edges(self.k):
            if (l, m) in exponents:
                pairs[l, m] = -(exponents[l, m][:, rows] if l == 0 else exponents[l, m])
            else:
                pairs[l, m] = example.new_zeros(self.num_batch, singles[l].shape[1], self.sizes[m])
        return additive(singles, pairs)

    def matched(self) -> Tensor:
        # Not `.diagonal()`, which torch.compile lowers with a warning.
        true = torch.arange(self.sizes[0], device=self.device)
        if self.stacked:
            return self.tensors[0][..., true, true].mean(-1).sum(-1)
        return torch.stack([cost[..., true, true].mean(-1) for cost in self.tensors]).sum(0)

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        marginals = tuple(coupling.pair(l, m) for l, m in self.edges)
        return (torch.stack(marginals, 1),) if self.stacked else marginals

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        return dict(zip(self.edges, self.matrices(directions)))
