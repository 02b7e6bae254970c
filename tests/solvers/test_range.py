"""Costs, weights and epsilons at the limits of their dtype: solved, or an error of one line."""

import pytest
import torch

import m3g


def points(sizes, scale, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [scale * torch.randn(n, 3, generator=generator, dtype=torch.float64).to(dtype) for n in sizes]


@pytest.mark.parametrize("solver", ["auto", "factored", "dense", "sinkhorn", "sampled"])
@pytest.mark.parametrize(("epsilon", "dtype"), [(4e-43, torch.float32), (1e40, torch.float32), (1e-300, torch.float64)])
def test_an_epsilon_outside_the_range_of_the_costs_is_an_error(solver, epsilon, dtype):
    problem = m3g.PairwiseCost("sqeuclidean")(points((6, 5, 4), epsilon**0.5, dtype))
    with pytest.raises(ValueError, match=f"epsilon must be between .* for costs of type {str(dtype)[6:]}, got"):
        m3g.solve(problem, epsilon=epsilon, solver=solver)
    with pytest.raises(ValueError, match="epsilon must be between"):
        m3g.matching_gap(torch.randn(3, 4, 2, dtype=dtype), epsilon=epsilon, solver=solver)


def test_costs_that_overflow_when_divided_by_epsilon_are_an_error():
    problem = m3g.PairwiseCost("sqeuclidean")(points((3, 4), 1e100))
    with pytest.raises(ValueError, match="costs divided by epsilon must be finite in float64"):
        m3g.solve(problem, epsilon=1e-200, solver="factored")


@pytest.mark.parametrize(("epsilon", "mass"), [(1e29, 1e9), (1e-29, 1e-9)])
def test_a_value_outside_the_range_of_the_costs_is_an_error(epsilon, mass):
    problem = m3g.PairwiseCost("sqeuclidean")(points((6, 5), epsilon**0.5, torch.float32))
    weights = [torch.full((n,), mass / n) for n in (6, 5)]
    with pytest.raises(ValueError, match="epsilon times the sum of the weights must be between"):
        m3g.solve(problem, epsilon=epsilon, weights=weights)
