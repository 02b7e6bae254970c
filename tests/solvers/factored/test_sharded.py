"""The contraction of slabs by several processes equals that of the whole coupling by one."""

import pytest
import torch

import m3g
from m3g.solvers.factored import sharded
from m3g.solvers.factored.contraction import CompleteContraction
from m3g.solvers.factored.kernels import pair_kernels
from solvers.group import in_group


@pytest.mark.parametrize("exchanged", [0, 2048], ids=["pairs of the slab", "exchanged pairs"])
@pytest.mark.parametrize("sizes", [(6, 5), (4, 6, 5), (3, 4, 5, 4)], ids=str)
def test_a_sharded_contraction_equals_that_of_the_whole_coupling(sizes, exchanged, monkeypatch):
    monkeypatch.setattr(sharded, "EXCHANGED_SIZE", exchanged)
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    problem = m3g.CircularVariance()([torch.nn.functional.normalize(view, dim=-1) for view in views])
    kernels = pair_kernels(problem, None, epsilon=0.3, tol=1e-6, read_values=True)
    scalings = [torch.rand(2, n, generator=generator, dtype=torch.float64) + 0.5 for n in sizes]
    whole = CompleteContraction(kernels.matrices, sizes)
    target = torch.full((2, sizes[whole.lead]), 1 / sizes[whole.lead], dtype=torch.float64)
    expected = whole.evaluate(scalings, target)

    def evaluate(processes):
        local = CompleteContraction(kernels.matrices, sizes, sharing=processes)
        contraction = sharded.ShardedContraction(local, local.shard)
        result = contraction.evaluate(scalings, target)
        complete = result.pairs if exchanged else local.shard.pairs(result.pairs)
        return result, complete

    for result, pairs in in_group(2, evaluate):
        torch.testing.assert_close(result.lead, expected.lead)
        torch.testing.assert_close(result.others, expected.others)
        for edge, pair in expected.pairs.items():
            torch.testing.assert_close(pairs[edge], pair)


@pytest.mark.parametrize("sizes", [(4, 6, 5), (3, 4, 5, 4)], ids=str)
def test_gradients_of_slabs_add_up(sizes):
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(1, n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=2.0, tol=1e-9)
    (expected,) = problem.gradient(solution.coupling_form)
    pairs = {(l, m): solution.coupling_form.pair(l, m) for l, m in problem.edges}
    tensor = solution.coupling().reshape(1, *sizes)

    def gradient(processes):
        kernels = {edge: torch.ones_like(pair) for edge, pair in pairs.items()}
        shard = CompleteContraction(kernels, sizes, sharing=processes).shard
        slab = tensor.movedim(shard.lead + 1, 0)[shard.rows].movedim(0, shard.lead + 1)
        local = {(l, m): slab.sum([a + 1 for a in range(len(sizes)) if a not in (l, m)]) for l, m in pairs}
        return sharded.sharded_gradients(problem, local, shard)[0]

    for result in in_group(2, gradient):
        torch.testing.assert_close(result, expected, atol=1e-8, rtol=1e-6)
