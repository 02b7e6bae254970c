"""Gradients of the coupling itself, against finite differences."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

import m3g

COSTS = {
    "circular variance": m3g.CircularVariance(),
    "circular standard deviation": m3g.CircularStd(),
    "pairs": m3g.PairwiseCost("sqeuclidean"),
    "chain": m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 0.5}),
}


def points(k, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(k, n, 4, generator=generator, dtype=torch.float64), dim=-1)


def weighted_sum(tensors, seed=1):
    """Some nonlinear function of tensors."""
    generator = torch.Generator().manual_seed(seed)
    return sum((torch.randn(t.shape, generator=generator, dtype=t.dtype) * (3 * t).exp()).sum() for t in tensors)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("quantity", ["pair marginals", "coupling"])
def test_gradients_agree_with_finite_differences(cost, quantity):
    epsilon = 2.0 if cost == "chain" else 0.4

    def function(x):
        solution = m3g.solve(COSTS[cost](x), epsilon=epsilon, tol=1e-12, differentiable=True)
        assert solution.converged
        if quantity == "coupling":
            return weighted_sum([solution.coupling()])
        return weighted_sum([solution.pair_marginal(l, m) for l, m in combinations(range(3), 2)])

    assert torch.autograd.gradcheck(function, points(3, 3).requires_grad_(), atol=1e-5, rtol=1e-4)


def test_a_dense_cost_may_have_different_sizes_and_weights():
    cost = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = [torch.tensor([0.3, 0.7]), torch.tensor([0.2, 0.3, 0.5]), torch.full((4,), 0.25)]

    def function(c):
        solution = m3g.solve(c, epsilon=0.2, tol=1e-12, weights=weights, differentiable=True)
        return weighted_sum([solution.pair_marginal(2, 0), solution.coupling()]), solution.value

    assert torch.autograd.gradcheck(function, cost.requires_grad_(), atol=1e-5)


def test_the_coupling_of_a_batch_with_four_views_is_differentiable():
    views = torch.stack([points(4, 3), points(4, 3, seed=5)])

    def function(x):
        solution = m3g.solve(m3g.CircularVariance()(x), epsilon=0.3, tol=1e-12, differentiable=True)
        return weighted_sum([solution.pair_marginal(1, 3), solution.pair_marginal(2, 0)])

    assert torch.autograd.gradcheck(function, views.requires_grad_(), atol=1e-5)


def test_large_systems_small_epsilon_and_float32_agree_with_the_dense_form():
    """These systems are too large for a direct factorisation; the two gradients share only the solve."""
    views = points(3, 64)
    for epsilon, dtype, rtol in ((0.05, torch.float64, 1e-4), (0.01, torch.float64, 1e-3), (0.05, torch.float32, 1e-2)):
        x = views.to(dtype).requires_grad_()
        solution = m3g.solve(m3g.CircularVariance()(x), epsilon=epsilon, tol=1e-5, differentiable=True)
        pair, full = solution.pair_marginal(0, 1), solution.coupling()
        (by_pairs,) = torch.autograd.grad(weighted_sum([pair]), x)
        (dense,) = torch.autograd.grad(weighted_sum([full.sum(2)]), x)
        assert (by_pairs - dense).norm() < rtol * dense.norm()


@pytest.mark.parametrize(("k", "n", "epsilon"), [(6, 5, 0.05), (6, 5, 0.5), (5, 6, 0.02), (2, 30, 0.01)])
def test_many_views_are_accurate_in_float32(k, n, epsilon):
    gradients = []
    for dtype in (torch.float32, torch.float64):
        x = points(k, n).to(dtype).requires_grad_()
        solution = m3g.solve(m3g.CircularVariance()(x), epsilon=epsilon, tol=1e-5, differentiable=True)
        gradients.append(torch.autograd.grad(weighted_sum([solution.pair_marginal(0, 1).double()]), x)[0].double())
    assert (gradients[0] - gradients[1]).norm() < 1e-2 * gradients[1].norm()


def test_a_view_may_have_no_edge():
    cost = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0})

    def function(x):
        solution = m3g.solve(cost(x), epsilon=1.0, tol=1e-12, differentiable=True)
        return weighted_sum([solution.pair_marginal(0, 1), solution.pair_marginal(1, 2)])

    assert torch.autograd.gradcheck(function, points(3, 3).requires_grad_(), atol=1e-5)


def test_by_default_a_solution_has_no_gradient():
    solution = m3g.solve(m3g.CircularVariance()(points(3, 3).requires_grad_()), epsilon=0.3)
    assert not solution.pair_marginal(0, 1).requires_grad
    assert not solution.value.requires_grad


def test_a_piecewise_constant_coupling_is_an_error():
    problem = m3g.CircularVariance()(points(3, 3).requires_grad_())
    solution = m3g.solve(problem, epsilon=0, solver="linear-program", differentiable=True)
    with pytest.raises(
        ValueError,
        match=r"must be 'factored', 'dense' or 'sinkhorn' for pair marginals .*=True, got 'linear-program'",
    ):
        solution.pair_marginal(0, 1)


@pytest.mark.parametrize("sizes", [(2, 4, 3), (4, 2, 3, 2), (2, 2, 3, 2, 2)])
def test_views_may_have_different_sizes(sizes):
    """The result must not depend on the view that the contraction eliminates or on how it groups the others."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 3, generator=generator, dtype=torch.float64).requires_grad_() for n in sizes]

    def function(*parts):
        problem = m3g.PairwiseCost("cosine")(list(parts))
        solution = m3g.solve(problem, epsilon=0.5, tol=1e-13, differentiable=True)
        return weighted_sum([solution.pair_marginal(l, m) for l, m in combinations(range(len(sizes)), 2)])

    assert torch.autograd.gradcheck(function, views, atol=1e-5)
