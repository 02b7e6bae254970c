"""Pair marginals of P ∘ D against sums over the full tensor."""

import itertools

import pytest
import torch

from m3g.costs import along
from m3g.solvers.gradients.weighted import WeightedComplete, WeightedGraph

CHAIN = [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("given", ["all", "first", "last"])
@pytest.mark.parametrize(
    ("kind", "sizes", "edges"),
    [
        (WeightedComplete, (3, 4), None),
        (WeightedComplete, (3, 4, 2), None),
        (WeightedComplete, (2, 3, 4, 2), None),
        (WeightedComplete, (2, 3, 2, 3, 2), None),
        (WeightedGraph, (2, 3, 4, 2), CHAIN),
    ],
)
def test_pair_marginals_are_sums_over_the_tensor(kind, sizes, edges, given):
    generator = torch.Generator().manual_seed(0)
    k = len(sizes)
    edges = edges or list(itertools.combinations(range(k), 2))

    def matrices():
        return {(l, m): torch.rand(2, sizes[l], sizes[m], generator=generator, dtype=torch.float64) for l, m in edges}

    kernels, directions = matrices(), matrices()
    kept = {"all": edges, "first": edges[:1], "last": edges[-1:]}[given]
    directions = {edge: directions[edge] for edge in kept}
    product = torch.ones(2, *sizes, dtype=torch.float64)
    for edge, kernel in kernels.items():
        product = product * along(kernel, edge, k)
    weighted = product * sum(along(direction, edge, k) for edge, direction in directions.items())
    form = kind(kernels, sizes)
    for pairs, tensor in ((form.pairs(), product), (form(directions), weighted)):
        for (l, m), pair in pairs.items():
            summed = [a + 1 for a in range(k) if a not in (l, m)]
            torch.testing.assert_close(pair, tensor.sum(summed) if summed else tensor)
    assert len(form.pairs()) == k * (k - 1) // 2
