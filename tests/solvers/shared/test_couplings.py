"""Representations of couplings: their marginals are those of their full tensor, whatever the size of the slabs."""

import itertools

import pytest
import torch

import m3g
import reference
from m3g.costs.coupling import Coupling
from m3g.solvers.shared import couplings
from m3g.solvers.shared.couplings import RescaledCoupling, slabs

SOLVERS = {"factored": m3g.Factored(), "sinkhorn": m3g.Sinkhorn()}


@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("within", [None, slice(1, 4)])
def test_slabs_cover_a_range_of_rows_once(rows, within, monkeypatch):
    monkeypatch.setattr(couplings, "SLAB_BYTES", rows * 3 * 4 * 8)
    parts = slabs((5, 3, 4), 1, 8, within)
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(5))[within or slice(None)]
    assert max(part.stop - part.start for part in parts) <= rows


def check_consistency(coupling, tensor):
    """All accessors are those of the full tensor (b, n_1, …, n_k)."""
    k = tensor.ndim - 1
    torch.testing.assert_close(torch.cat([slab for _, slab in coupling.rows()], 1), tensor)
    for l in range(k):
        torch.testing.assert_close(coupling.marginal(l), tensor.sum([a + 1 for a in range(k) if a != l]))
    for l, m in itertools.combinations(range(k), 2):
        summed = [a + 1 for a in range(k) if a not in (l, m)]
        torch.testing.assert_close(coupling.pair(l, m), tensor.sum(summed) if summed else tensor)
    points = torch.randn(len(tensor), sum(tensor.shape[1:]), 3, dtype=tensor.dtype)
    torch.testing.assert_close(coupling.pull(points), Coupling.pull(coupling, points))


@pytest.mark.parametrize("slab_bytes", [1, 2**24], ids=["slabs", "whole"])
@pytest.mark.parametrize("cost", ["cv", "sqeuclidean"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sizes", [(3, 4), (3, 2, 4)], ids=str)
def test_accessors_are_those_of_the_full_tensor(solver, sizes, cost, slab_bytes, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    problem = m3g.costs.as_cost(cost)(views)
    solution = m3g.solve(problem, epsilon=2.0, tol=1e-10, solver=SOLVERS[solver])
    tensor = torch.stack([reference.algorithm_1(problem.dense()[i], 2.0, 1e-12)[0] for i in range(2)])
    monkeypatch.setattr(couplings, "SLAB_BYTES", slab_bytes)
    torch.testing.assert_close(solution.coupling(), tensor, atol=1e-9, rtol=0)
    check_consistency(solution.coupling_form, solution.coupling())


def test_a_rescaled_coupling_multiplies_every_accessor():
    problem = m3g.CircularVariance()(torch.stack([reference.noisy_views(3, 4, 3, seed=seed) for seed in range(2)]))
    inner = m3g.solve(problem, epsilon=0.3, tol=1e-9).coupling_form
    tensor = torch.cat([slab for _, slab in inner.rows()], 1)
    factor = torch.tensor([2.0, 0.5], dtype=torch.float64)
    scaled = RescaledCoupling(inner, factor, torch.float64, torch.float32)
    assert scaled.pair(0, 1).dtype == torch.float32
    check_consistency(scaled, (factor.view(2, 1, 1, 1) * tensor).float())
