"""Couplings as used by the costs."""

import pytest
import torch

import reference
from m3g.costs import coupling
from m3g.costs.coupling import TensorCoupling


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5, 2), (2, 3, 4, 2)], ids=str)
def test_pull_by_pairs_equals_pull_by_the_block_matrix(sizes, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    tensor = torch.rand(2, *sizes, generator=generator, dtype=torch.float64)
    points = torch.randn(2, sum(sizes), 3, generator=generator, dtype=torch.float64)
    by_pairs = TensorCoupling(tensor).pull(points)
    monkeypatch.setattr(coupling, "overwritable", lambda tensor: False)
    by_matrix = TensorCoupling(tensor).pull(points)
    torch.testing.assert_close(by_pairs, by_matrix)
    torch.testing.assert_close(by_pairs[0], reference.pull(tensor[0], points[0]))


@pytest.mark.parametrize("sizes", [(4, 4), (3, 5, 2), (2, 3, 4, 2), (2, 3, 2, 2, 3)], ids=str)
def test_pair_sums_are_sums_over_the_other_views(sizes):
    joint = torch.rand(2, *sizes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    views = [2 * l + 1 for l in range(len(sizes))]
    sums = coupling.pair_sums(joint, views)
    assert len(sums) == len(sizes) * (len(sizes) - 1) // 2
    for (first, second), pair in sums.items():
        torch.testing.assert_close(pair, coupling.sum_onto(joint, (views.index(first), views.index(second))))
