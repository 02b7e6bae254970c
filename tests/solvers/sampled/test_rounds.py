"""Solves by the sampled solver, compared with exact ones."""

import functools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g.solvers import SamplingWarning, auto
from solvers import noisy
from solvers.noisy import gap_and_gradient

noisy_views = functools.partial(noisy.noisy_views, d=64)


@pytest.mark.parametrize(
    ("k", "n", "noise", "epsilon", "cosine"),
    [
        (3, 128, 1.0, 0.2, 0.999),
        (3, 128, 0.3, 0.05, 0.99),
        (3, 128, 2.0, 0.05, 0.99),
        (4, 32, 0.3, 0.05, 0.99),
        (4, 32, 1.0, 0.02, 0.98),
        (5, 12, 2.0, 0.2, 0.999),
        (6, 8, 1.0, 0.05, 0.99),
    ],
)
def test_agrees_with_the_exact_solver_within_its_own_error(k, n, noise, epsilon, cosine):
    views = noisy_views(k, n, noise)
    exact, true_gradient, _ = gap_and_gradient(views.double(), epsilon, m3g.Factored(), 1e-7)
    gap, gradient, solution = gap_and_gradient(views, epsilon, m3g.Sampled(seed=0))
    assert solution.converged
    assert abs(float(gap - exact)) < 4 * float(solution.standard_error)
    assert float(solution.standard_error) < 0.01 * float(exact) + 0.001
    gradient = gradient.double()
    assert float(torch.cosine_similarity(gradient.flatten(), true_gradient.flatten(), dim=0)) > cosine
    error = float((gradient - true_gradient).norm() / true_gradient.norm())
    assert error < 2 * float(solution.relative_gradient_error)


@pytest.mark.parametrize(("k", "n"), [(3, 128), (4, 32), (4, 64)])
def test_a_nearly_solved_batch_takes_few_steps(k, n):
    """The Hessian is nearly singular: a ridge above the rounding of its entries would make every step too short.

    The mass of the validation sample differs by rounding only, which must not cause another round.
    """
    _, _, solution = gap_and_gradient(noisy_views(k, n, 0.3), 0.02, m3g.Sampled(seed=1), 1e-6)
    assert solution.converged
    assert solution.num_steps <= 10


@settings(max_examples=15, deadline=None)
@given(
    k=st.integers(2, 5),
    n=st.integers(1, 12),
    noise=st.sampled_from([0.0, 0.3, 2.0]),
    epsilon=st.sampled_from([0.05, 0.2, 1.0]),
    seed=st.integers(0, 10),
)
def test_the_gap_is_not_negative_beyond_its_error(k, n, noise, epsilon, seed):
    views = noisy_views(k, n, noise, d=8, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        gap, gradient, solution = gap_and_gradient(views, epsilon, m3g.Sampled(rank=256, seed=seed))
    assert solution.converged
    assert bool(torch.isfinite(gradient).all())
    assert float(gap) >= -3 * float(solution.standard_error) - 1e-5


def test_the_same_seed_gives_the_same_result():
    views = noisy_views(4, 16, 1.0)
    state = torch.get_rng_state()
    first, gradient, _ = gap_and_gradient(views, 0.05, m3g.Sampled(rank=256, seed=3))
    assert torch.equal(torch.get_rng_state(), state)  # a seed does not change other draws
    again, gradient_again, _ = gap_and_gradient(views, 0.05, m3g.Sampled(rank=256, seed=3))
    other, _, _ = gap_and_gradient(views, 0.05, m3g.Sampled(rank=256, seed=4))
    assert torch.equal(first, again)
    assert torch.equal(gradient, gradient_again)
    assert not torch.equal(first, other)


def test_without_a_seed_every_solve_draws_new_samples():
    views = noisy_views(4, 16, 1.0)
    values = []
    for make in (lambda: torch.Generator().manual_seed(5), lambda: torch.manual_seed(5)):
        generator = make()
        solver = m3g.Sampled(rank=256, generator=None if generator is torch.default_generator else generator)
        values.append([float(gap_and_gradient(views, 0.05, solver)[0]) for _ in range(2)])
    assert values[0] == values[1]
    assert values[0][0] != values[0][1]


@pytest.mark.parametrize("form", ["products", "tuples"])
def test_every_problem_of_a_batch_is_solved_correctly(form):
    views = noisy_views(3, 10, 1.0, batch=(2, 2))
    exact = m3g.matching_gap(views, epsilon=0.1, tol=1e-6)
    gap, _, solution = gap_and_gradient(views, 0.1, m3g.Sampled(rank=2048, seed=0, form=form))
    assert gap.shape == solution.standard_error.shape == (2, 2)
    assert bool(((gap - exact).abs() < 4 * solution.standard_error).all())
    assert solution.pair_marginal(0, 2).shape == (2, 2, 10, 10)


BOTH_COSTS = pytest.mark.parametrize("cost", [m3g.CircularVariance(), m3g.CircularStd()], ids=["cv", "csd"])


@BOTH_COSTS
def test_two_views_require_no_samples(cost):
    views = noisy_views(2, 20, 1.0, dtype=torch.float64)
    exact, gradient, _ = gap_and_gradient(views, 0.1, auto.Auto(), 1e-9, cost=cost)
    gap, same, solution = gap_and_gradient(views, 0.1, m3g.Sampled(rank=16, seed=0), 1e-9, cost=cost)
    assert float(solution.standard_error) < 1e-12
    torch.testing.assert_close(gap, exact, atol=1e-8, rtol=0)
    torch.testing.assert_close(same, gradient, atol=1e-8, rtol=1e-6)


@BOTH_COSTS
def test_sizes_and_weights_may_differ(cost):
    generator = torch.Generator().manual_seed(0)
    views = [torch.nn.functional.normalize(torch.randn(n, 8, generator=generator), dim=-1) for n in (7, 9, 6)]
    weights = [torch.rand(n, generator=generator) + 0.5 for n in (7, 9, 6)]
    weights = [weight / weight.sum() * 2 for weight in weights]
    problem = cost(views)
    exact = m3g.solve(problem, epsilon=0.2, tol=1e-6, weights=weights)
    for form in ("products", "tuples") if isinstance(cost, m3g.CircularVariance) else ("tuples",):
        solution = m3g.solve(problem, epsilon=0.2, weights=weights, solver=m3g.Sampled(form=form, seed=1))
        assert solution.converged
        assert abs(float(solution.value - exact.value)) < 4 * float(solution.standard_error)
        for l in range(3):
            torch.testing.assert_close(solution.marginal(l), weights[l], atol=1e-3, rtol=0)
        assert float((solution.pair_marginal(0, 2) - exact.pair_marginal(0, 2)).abs().sum()) < 0.1
        # Constants may be shifted between views, so the sums of potentials over tuples are compared.
        assert abs(float(sum(f[0] for f in solution.potentials) - sum(f[0] for f in exact.potentials))) < 0.05


@pytest.mark.parametrize("weights", [None, {(0, 1): 1.0, (1, 2): 0.5, (2, 3): 1.0}])
def test_any_cost_by_pairs_of_views_can_be_sampled(weights):
    views = noisy_views(4, 12, 1.0)
    problem = m3g.PairwiseCost("sqeuclidean", weights=weights)(views)
    exact = m3g.solve(problem, epsilon=0.5, tol=1e-6)
    solution = m3g.solve(problem, epsilon=0.5, solver=m3g.Sampled(seed=0))
    assert abs(float(solution.value - exact.value)) < 4 * float(solution.standard_error)
    for l, m in problem.edges:
        assert float((solution.pair_marginal(l, m) - exact.pair_marginal(l, m)).abs().sum()) < 0.2


def test_forward_and_backward_mode_agree():
    views, direction = noisy_views(3, 16, d=8), noisy_views(3, 16, d=8, seed=1)

    def gap(points):
        return m3g.matching_gap(points, epsilon=0.2, solver=m3g.Sampled(form="products", rank=256, seed=0))

    _, slope = torch.func.jvp(gap, (views,), (direction,))
    torch.testing.assert_close(slope, (torch.func.grad(gap)(views) * direction).sum())
