"""The sampled solver with a fixed number of steps: accuracy, and infinite errors of untrusted results."""

import pytest
import torch

import m3g


def noisy(k, n, d=16, noise=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(1, n, d, generator=generator) + noise * torch.randn(k, n, d, generator=generator)
    return torch.nn.functional.normalize(views, dim=-1)


@pytest.mark.parametrize(("k", "n", "epsilon"), [(2, 24, 0.2), (3, 16, 0.2), (4, 32, 0.1), (6, 8, 0.2)])
def test_fixed_steps_find_the_exact_value_within_their_error(k, n, epsilon):
    problem = m3g.CircularVariance()(noisy(k, n))
    exact = m3g.solve(problem, epsilon=epsilon, tol=1e-5, solver="factored")
    solvers = [m3g.Sampled(fixed_steps=4, rank=1024, seed=seed) for seed in range(8)]
    solutions = [m3g.solve(problem, epsilon=epsilon, solver=solver) for solver in solvers]
    # With a fixed number of steps, no round is added after a discrepancy with the validation sample.
    trusted = [solution for solution in solutions if solution.result is m3g.Result.ESTIMATED]
    assert len(trusted) >= 6
    for solution in trusted:
        assert solution.num_steps == 8
        assert abs(solution.value - exact.value) < 4 * solution.standard_error
        difference = (solution.pair_marginal(0, k - 1) - exact.pair_marginal(0, k - 1)).abs().sum()
        assert difference < 0.1


def test_members_of_a_batch_may_have_weights():
    problem = m3g.CircularVariance()(torch.stack([noisy(3, 12, seed=s) for s in range(2)]))
    weights = [torch.linspace(1, 2, 12) / 18] * 3
    exact = m3g.solve(problem, epsilon=0.2, tol=1e-5, weights=weights)
    solution = m3g.solve(problem, epsilon=0.2, weights=weights, solver=m3g.Sampled(fixed_steps=4, rank=1024, seed=0))
    assert solution.converged
    assert ((solution.value - exact.value).abs() < 4 * solution.standard_error).all()


def test_untrusted_results_have_an_infinite_error():
    problem = m3g.CircularVariance()(noisy(3, 16))
    solution = m3g.solve(problem, epsilon=0.003, tol=10.0, solver=m3g.Sampled(fixed_steps=8, rank=256, seed=0))
    assert solution.result is m3g.Result.UNTRUSTED
    assert not solution.converged
    assert solution.standard_error == torch.inf


def test_wrong_settings_are_rejected():
    with pytest.raises(ValueError, match="fixed_steps must be None with form='tuples' or rtol"):
        m3g.Sampled(fixed_steps=2, form="tuples")
    with pytest.raises(ValueError, match="fixed_steps must be"):
        m3g.Sampled(fixed_steps=0)
    with pytest.raises(ValueError, match="cost must be the circular variance with fixed_steps"):
        m3g.matching_gap(torch.randn(3, 8, 4), cost="sqeuclidean", solver=m3g.Sampled(fixed_steps=2))


def test_compiled_code_requires_fixed_steps(monkeypatch):
    problem = m3g.CircularVariance()(noisy(3, 8))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="fixed_steps must be a whole number with solver='sampled' in compiled code"):
        m3g.Sampled().solve(problem, epsilon=0.2, tol=1e-3, weights=None)
