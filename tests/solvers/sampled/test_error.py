"""Error estimates of a sampled solution."""

import pytest
import torch

import m3g
from m3g.costs import Coupling
from m3g.costs.coupling import TensorCoupling
from m3g.solvers.sampled.error import _TrueMatching, mass_variance, overfit_factor
from solvers.noisy import gap_and_gradient, noisy_views
from solvers.sampled.kernels import problem_of


@pytest.mark.filterwarnings("ignore::m3g.solvers.SamplingWarning")
def test_overfitted_potentials_do_not_reduce_the_error_estimate():
    views = noisy_views(3, 64, 1.0, d=64)
    _, true_gradient, _ = gap_and_gradient(views.double(), 0.05, m3g.Factored(), 1e-7)
    true, estimated = 0.0, 0.0
    for seed in range(6):
        _, gradient, solution = gap_and_gradient(views, 0.05, m3g.Sampled(rank=1024, form="products", seed=seed), 1e-5)
        true += float((gradient.double() - true_gradient).norm() / true_gradient.norm()) ** 2
        estimated += float(solution.relative_gradient_error) ** 2
    assert 0.8 < (true / estimated) ** 0.5 < 1.2


def test_the_correction_factor_grows_with_the_bias():
    weights = torch.rand(3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bias = torch.tensor([0.0, 0.05, 0.6], dtype=torch.float64) * weights.sum(1)
    none, some, most = overfit_factor(weights, bias).tolist()
    assert none == 1
    assert 1 / 0.9 < some < 1.3  # heavy samples have more leverage, and more of the error
    assert 10 < most < 100
    torch.testing.assert_close(overfit_factor(7 * weights, 7 * bias), overfit_factor(weights, bias))
    assert (
        overfit_factor(torch.zeros(1, 5), torch.zeros(1)).item()
        == overfit_factor(torch.zeros(1, 0), torch.zeros(1)).item()
        == 1
    )


def test_the_variance_of_dependent_draws_is_that_between_halves():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 4000, generator=generator, dtype=torch.float64)
    agreeing = torch.cat([first, first, second, second]).unsqueeze(0)  # draws of a component agree within halves
    assert float(mass_variance(agreeing, 4)) == pytest.approx(4000 * 8, rel=0.1)
    opposite = torch.cat([first, -first, second, -second]).unsqueeze(0)  # and these have the same sum
    assert float(mass_variance(opposite, 4)) == pytest.approx(4000 * 16 / 3, rel=0.1)
    assert mass_variance(torch.zeros(2, 0), 4).tolist() == [0.0, 0.0]
    assert mass_variance(torch.ones(2, 8), 4).tolist() == [0.0, 0.0]


def test_the_variance_estimate_includes_its_error_if_few_components_dominate():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(5000, 4, 5, generator=generator, dtype=torch.float64)
    errors = weights.sum((1, 2)) / mass_variance(weights.flatten(1), 4).sqrt()
    assert 0.3 < float(errors.square().mean()) < 1.0
    weights[..., 1:] *= 0.01  # one component has nearly all the variance
    errors = weights.sum((1, 2)) / mass_variance(weights.flatten(1), 4).sqrt()
    assert 0.5 < float(errors.square().mean()) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epsilon"), [(0.3, 0.05), (1.0, 0.2)])
def test_two_standard_errors_cover_nine_draws_in_ten(noise, epsilon):
    views = noisy_views(4, 12, noise, d=16)
    exact = float(m3g.matching_gap(views.double(), epsilon=epsilon, tol=1e-7))
    scores = []
    for seed in range(200):
        gap, _, solution = gap_and_gradient(views, epsilon, m3g.Sampled(rank=1024, seed=seed))
        scores.append(float(gap - exact) / float(solution.standard_error))
    assert sum(abs(score) <= 2 for score in scores) >= 180


def test_pulls_of_the_true_matching_equal_those_of_its_full_tensor():
    problem = problem_of((4, 4, 4), b=2)
    matching = _TrueMatching(problem, torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    tensor = torch.zeros(2, 4, 4, 4, dtype=torch.float64)
    for i in range(4):
        tensor[:, i, i, i] = torch.tensor([0.25, 0.5])
    points = problem.tensors[0]
    torch.testing.assert_close(matching.pull(points), Coupling.pull(TensorCoupling(tensor), points))
    expected = Coupling.weighted_pull(TensorCoupling(tensor), points, torch.exp)
    torch.testing.assert_close(matching.weighted_pull(points, torch.exp), expected)
    torch.testing.assert_close(matching.product_pull(points), TensorCoupling(tensor).product_pull(points))
