"""Error estimates and settings of the sampled solver, and its selection by `auto`."""

import functools
import math
import warnings

import pytest
import torch

import m3g
from m3g.solvers import SamplingWarning
from solvers import noisy
from solvers.noisy import gap_and_gradient

noisy_views = functools.partial(noisy.noisy_views, d=64)


@pytest.mark.parametrize("seed", range(4))
def test_rtol_raises_the_rank_until_it_is_reached(seed):
    views = noisy_views(4, 16, 0.3)
    _, _, coarse = gap_and_gradient(views, 0.05, m3g.Sampled(rank=256, seed=seed))
    _, _, fine = gap_and_gradient(views, 0.05, m3g.Sampled(rank=256, rtol=0.03, seed=seed))
    assert float(coarse.relative_gradient_error) > 0.06
    assert float(fine.relative_gradient_error) <= 0.03


def test_rtol_beyond_the_budget_warns():
    views = noisy_views(3, 32, 2.0)
    with pytest.warns(SamplingWarning, match="gradient exceeds rtol=0.01 at the highest rank"):
        _, _, solution = gap_and_gradient(
            views, 0.05, m3g.Sampled(rank=512, rtol=0.01, max_rank=1024, seed=0, form="tuples")
        )
    assert solution.coupling_form.kernel.num_samples == 1024


@pytest.mark.parametrize(
    ("rank", "epsilon", "reason"),
    [
        (16, 0.02, "biased by more than"),
        (16, 0.0025, "an independent sample disagrees about its mass"),
        (256, 0.02, "biased by more than"),
        (256, 0.05, "biased by more than"),
    ],
)
def test_too_few_samples_are_not_trusted(rank, epsilon, reason):
    views = noisy_views(3, 64, 2.0)
    with pytest.warns(SamplingWarning, match=f"is not trusted: .*{reason}"):
        m3g.matching_gap(views, epsilon=epsilon, solver=m3g.Sampled(rank=rank, seed=0))


def test_an_untrusted_solve_warns_once_in_training():
    loss = m3g.M3GLoss(epsilon=0.02, solver=m3g.Sampled(rank=256))
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for seed in range(3):
            loss(noisy_views(3, 64, 2.0, seed=seed))
    assert [warning.category for warning in caught] == [SamplingWarning]


def test_a_teacher_makes_k_problems_of_one_batch():
    student, teacher = noisy_views(3, 10, 1.0, batch=(2,))
    exact = m3g.M3GLoss(epsilon=0.2, tol=1e-6)(student, teacher=teacher)
    loss = m3g.M3GLoss(epsilon=0.2, solver=m3g.Sampled(seed=0))
    assert abs(float(loss(student, teacher=teacher) - exact)) < 4 * float(loss.last.standard_error.mean())


@pytest.mark.parametrize(("cost", "epsilon"), [("cv", 0.05), ("csd", 0.1), ("sqeuclidean", 0.5)])
def test_missing_points_have_zero_gradient(cost, epsilon):
    views = noisy_views(3, 12, 1.0, d=16).requires_grad_()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[0, 2] = mask[2, 5] = mask[1, 5] = False
    exact = m3g.matching_gap(views, cost=cost, epsilon=epsilon, mask=mask, tol=1e-5)
    loss = m3g.M3GLoss(epsilon=epsilon, cost=cost, solver=m3g.Sampled(seed=0))
    gap = loss(views, mask=mask)
    gap.backward()
    assert abs(gap.item() - exact.item()) < 3 * float(loss.last.standard_error)
    assert bool((views.grad[~mask] == 0).all())
    assert bool((views.grad[mask].norm(dim=-1) > 0).all())


def test_more_tuples_than_fit_into_a_tensor_are_supported():
    views = noisy_views(20, 30, 1.0)
    gap, gradient, solution = gap_and_gradient(views, 0.05, m3g.Sampled(rank=1024, seed=0))
    again, other, _ = gap_and_gradient(views, 0.05, m3g.Sampled(rank=1024, seed=1))
    assert abs(float(gap - again)) < 4 * math.sqrt(2) * float(solution.standard_error)
    assert float(torch.cosine_similarity(gradient.flatten(), other.flatten(), dim=0)) > 0.99


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "rank must be a whole number of at least 1, got 0"),
        ({"rounds": 1.5}, "rounds must be a whole number of at least 1, got 1.5"),
        ({"rtol": -1.0}, "rtol must be a positive finite number, got -1.0"),
        ({"form": "sums"}, "form must be one of 'auto', 'products', 'tuples', got 'sums'"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"generator": 5}, "generator must be a torch.Generator or None, got int"),
        ({"seed": 1, "generator": torch.Generator()}, "seed must be None if a generator is given"),
    ],
)
def test_invalid_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        m3g.Sampled(**arguments)


@pytest.mark.filterwarnings("ignore::m3g.solvers.SamplingWarning")
@pytest.mark.parametrize("form", ["auto", "tuples"])
def test_a_nan_is_detected(form):
    views = noisy_views(3, 8, 1.0)
    views[1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match="got NaN in view 1, point 2"):
        m3g.M3GLoss(solver=m3g.Sampled(rank=64, form=form))(views)


def test_costs_that_cannot_be_sampled_are_named():
    views = noisy_views(3, 4, 1.0)
    with pytest.raises(ValueError, match=r"cost must be a named cost, .* got DenseProblem"):
        m3g.solve(torch.rand(3, 3, 3), epsilon=0.1, solver="sampled")
    problem = m3g.PairwiseCost("sqeuclidean")(views)
    with pytest.raises(ValueError, match=r"form must be 'auto' or 'tuples' for a PairwiseProblem, got 'products'"):
        m3g.solve(problem, epsilon=0.1, solver=m3g.Sampled(form="products"))
