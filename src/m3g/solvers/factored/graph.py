"""Contraction of kernels on any graph of views.

opt_einsum chooses the order of contraction. On a tree, the marginal of a view and the pair marginal of an edge cost
O(k n²), and the pair marginal of any other two views costs O(k n³) :cite:`haasler2021`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import opt_einsum
import torch
from torch import Tensor

from m3g.costs import all_edges
from m3g.costs.coupling import Edge
from m3g.solvers.shared.dual import Contracted, Contraction


class GraphContraction(Contraction):
    """Contraction of kernels {(l, m): (b, n_l, n_m)} on the edges of a graph of views."""

    def __init__(self, kernels: dict[Edge, Tensor], sizes: Sequence[int], *, all_pairs: bool):
        """With `all_pairs`, `evaluate` also returns the pair marginals of pairs of views without an edge."""
        self.kernels = kernels
        self.sizes = list(sizes)
        self.returned_pairs = all_edges(len(self.sizes)) if all_pairs else list(kernels)

    def _contract(self, kept: tuple[int, ...], scalings: Sequence[Tensor]) -> Tensor:
        """Return the marginal on the views `kept`: (b, n_l), or (b, n_l, n_m) for two views."""
        num_batch = next(iter(self.kernels.values())).shape[0]
        terms = (*((l,) for l in range(len(self.sizes))), *self.kernels)
        contract = expression(terms, tuple(self.sizes), num_batch, kept)
        marginal: Tensor = contract(*scalings, *self.kernels.values(), backend="torch")
        return marginal

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        return self._contract((l, m), scalings)

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor]:
        """Return the scalings after one sweep of Algorithm 1."""
        swept = list(scalings)
        for l, target in enumerate(targets):
            swept[l] = swept[l] * (target / self._contract((l,), swept))
        return swept

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        lead = scalings[0] * (target / self._contract((0,), scalings))
        scaled = [lead, *scalings[1:]]
        pairs = {edge: self._contract(edge, scaled) for edge in self.returned_pairs}
        others = [self._contract((l,), scaled) for l in range(1, len(scaled))]
        return Contracted(pairs, torch.cat(others, 1), lead)


@lru_cache(maxsize=256)
def expression(
    terms: tuple[tuple[int, ...], ...], sizes: tuple[int, ...], num_batch: int, kept: tuple[int, ...]
) -> Callable[..., Tensor]:
    """Return a function that contracts factors to the marginal on the views `kept`; without views, to the mass (b,).

    `terms` contains, for each factor (b, n_l, n_m, …), its views (l, m, …).
    """
    letters = [opt_einsum.get_symbol(l + 1) for l in range(len(sizes))]
    batch = opt_einsum.get_symbol(0)
    inputs = ",".join(batch + "".join(letters[l] for l in term) for term in terms)
    output = batch + "".join(letters[l] for l in kept)
    shapes = [(num_batch, *(sizes[l] for l in term)) for term in terms]
    contract: Callable[..., Tensor] = opt_einsum.contract_expression(f"{inputs}->{output}", *shapes, optimize="auto")
    return contract
