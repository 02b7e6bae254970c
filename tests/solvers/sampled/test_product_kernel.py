"""Products over the views."""

import pytest

import m3g
from m3g.solvers import SamplingWarning
from solvers.noisy import gap_and_gradient, noisy_views


@pytest.mark.parametrize("k", [3, 5])
def test_tuples_that_products_may_miss_are_sampled_or_reported(k):
    views = noisy_views(k, 12 if k == 3 else 6, 2.0, d=5, seed=3)
    exact, true_gradient, _ = gap_and_gradient(views.double(), 0.005, m3g.Factored(), 1e-6)
    gap, gradient, solution = gap_and_gradient(views, 0.005, m3g.Sampled(seed=1, form="tuples"), 1e-4)
    assert abs(float(gap - exact)) < 4 * float(solution.standard_error)
    error = float((gradient - true_gradient).norm() / true_gradient.norm())
    assert error < 3 * float(solution.relative_gradient_error) < 0.05
    with pytest.warns(SamplingWarning, match="form='products' may miss tuples"):
        gap_and_gradient(views, 0.005, m3g.Sampled(seed=1, form="products"))
