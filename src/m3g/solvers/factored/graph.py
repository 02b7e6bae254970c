"""Marginals of a coupling whose kernel is a product over some pairs of views: any graph, by tensor contraction.

The order of contraction is the cheapest that opt_einsum finds; a marginal of a tree costs O(k n²).
"""

from __future__ import annotations

from collections.abc import Sequence

import opt_einsum
from torch import Tensor

from m3g.costs.coupling import Edge


class GraphContraction:
    """Kernels {(l, m): (b, n_l, n_m)} for the edges of a graph; same calls as `CompleteContraction`."""

    lead = 0

    def __init__(self, kernels: dict[Edge, Tensor], sizes: Sequence[int]):
        self.kernels = kernels
        self.sizes = list(sizes)
        k = len(self.sizes)
        self._letters = [opt_einsum.get_symbol(l + 1) for l in range(k)]
        self._batch = opt_einsum.get_symbol(0)
        self._expressions: dict[tuple[int, ...], opt_einsum.contract.ContractExpression] = {}

    def _contract(self, kept: tuple[int, ...], operands: Sequence[Tensor]) -> Tensor:
        if kept not in self._expressions:
            terms = [[l] for l in range(len(self.sizes))] + [list(edge) for edge in self.kernels]
            inputs = [self._batch + "".join(self._letters[l] for l in term) for term in terms]
            output = self._batch + "".join(self._letters[l] for l in kept)
            self._expressions[kept] = opt_einsum.contract_expression(
                ",".join(inputs) + "->" + output, *[tuple(each.shape) for each in operands], optimize="auto"
            )
        return self._expressions[kept](*operands, backend="torch")

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        return self._contract((l, m), [*scalings, *self.kernels.values()])

    def marginal(self, scalings: Sequence[Tensor], l: int) -> Tensor:
        return self._contract((l,), [*scalings, *self.kernels.values()])

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        """The scalings after each view in turn has been scaled to its target: one sweep of Algorithm 1."""
        scalings = list(scalings)
        for l, target in enumerate(targets):
            scalings[l] = scalings[l] * (target / self.marginal(scalings, l))
        return scalings

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> tuple[dict[Edge, Tensor], list[Tensor], Tensor]:
        """Pair marginals on the edges, all marginals, and the factor that scales view 0 to its target."""
        factor = target / self.marginal(scalings, self.lead)
        scaled = [scalings[self.lead] * factor, *scalings[1:]]
        pairs = {edge: self.pair(scaled, *edge) for edge in self.kernels}
        return pairs, [self.marginal(scaled, l) for l in range(len(scaled))], factor
