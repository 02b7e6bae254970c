"""Problems that are sums over pairs: one cost per edge or stacked, selected rows, and logarithms of their kernels."""

import pytest
import torch

from m3g.costs import PairwiseProblem, along
from m3g.costs.coupling import TensorCoupling

EDGES = [(0, 1), (1, 2)]


def problem_of(stacked):
    generator = torch.Generator().manual_seed(0)
    costs = torch.rand(2, 2, 3, 3, generator=generator, dtype=torch.float64)
    given = costs if stacked else list(costs.unbind(1))
    expected = sum(along(costs[:, i], edge, 3) for i, edge in enumerate(EDGES)).expand(2, 3, 3, 3)
    return PairwiseProblem(EDGES, given, sizes=(3, 3, 3), batch=(2,)), expected


@pytest.mark.parametrize("stacked", [False, True])
def test_the_tensor_is_the_sum_of_the_costs_of_edges(stacked):
    problem, expected = problem_of(stacked)
    torch.testing.assert_close(problem.dense(), expected)
    torch.testing.assert_close(problem.slab(slice(1, 2)), expected[:, 1:2])
    torch.testing.assert_close(problem.scaled(2.0).dense(), 2 * expected)
    torch.testing.assert_close(problem.matched(), expected[:, range(3), range(3), range(3)].mean(1))
    rows = [torch.tensor([0, 2]), torch.tensor([1]), torch.tensor([2, 0, 1])]
    torch.testing.assert_close(problem.select(rows).dense(), expected[:, [0, 2]][:, :, [1]][..., [2, 0, 1]])


@pytest.mark.parametrize("stacked", [False, True])
def test_exponents_and_shift_give_the_costs(stacked):
    problem, expected = problem_of(stacked)
    kernels = problem.log_kernels(0.1, torch.float64)
    exponents = problem.by_edge(kernels.groups)
    total = sum(along(exponents[edge], edge, 3) for edge in EDGES)
    for l, part in enumerate(kernels.shift.split([3, 3, 3], 1)):
        total = total - along(part, (l,), 3) / 0.1
    torch.testing.assert_close(-0.1 * total, expected)
    for exponent in exponents.values():
        assert float(exponent.mean(-1).abs().max()) < 1e-9  # the means are in the shift


@pytest.mark.parametrize("stacked", [False, True])
def test_the_gradient_is_the_pair_marginal_of_every_edge(stacked):
    problem, _ = problem_of(stacked)
    coupling = TensorCoupling(torch.rand(2, 3, 3, 3, dtype=torch.float64))
    gradient = problem.matrices(problem.gradient(coupling))
    for edge, part in zip(EDGES, gradient):
        torch.testing.assert_close(part, coupling.pair(*edge))
    directions = [torch.rand_like(tensor) for tensor in problem.tensors]
    assert sorted(problem.change(directions)) == EDGES
