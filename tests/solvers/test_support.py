"""Points of weight zero have no mass; small weights are solved in float64; tiny ones are an error."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g.costs import as_cost

COSTS = ["cv", "csd", "sqeuclidean", m3g.PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 2.0})]


def unit_views(sizes, seed, batch=()):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(*batch, n, 4, generator=generator, dtype=torch.float64) for n in sizes]
    return [torch.nn.functional.normalize(view, dim=-1) for view in views]


def weights_with_zeros(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    out = []
    for n in sizes:
        weight = torch.rand(n, generator=generator, dtype=torch.float64) + 0.1
        weight[torch.randperm(n, generator=generator)[: n // 3]] = 0.0
        out.append(weight / weight.sum())
    return out


@pytest.mark.parametrize("solver", ["auto", "sinkhorn", "sampled"])
@pytest.mark.parametrize("cost", COSTS, ids=["cv", "csd", "sqeuclidean", "chain"])
@settings(max_examples=5, deadline=None)
@given(sizes=st.tuples(*[st.integers(2, 6)] * 3), seed=st.integers(0, 1000))
def test_points_of_weight_zero_do_not_change_the_solution_of_the_others(cost, solver, sizes, seed):
    views, weights = unit_views(sizes, seed), weights_with_zeros(sizes, seed)
    options = {"epsilon": 0.3, "tol": 1e-8, "solver": solver}
    solution = m3g.solve(as_cost(cost)(views), weights=weights, **options)
    kept = [weight > 0 for weight in weights]
    fewer = [view[rows] for view, rows in zip(views, kept)]
    alone = m3g.solve(as_cost(cost)(fewer), weights=[a[rows] for a, rows in zip(weights, kept)], **options)
    assert solution.converged
    torch.testing.assert_close(solution.value, alone.value)
    for l, (rows, weight) in enumerate(zip(kept, weights)):
        torch.testing.assert_close(solution.marginal(l), weight, atol=1e-7, rtol=0)
        assert bool((solution.potentials[l][~rows] == -torch.inf).all())
    # Each potential is determined up to a constant, their sum is not.
    for i in range(2):
        firsts = [
            sum(f[f > -torch.inf][i % len(f[f > -torch.inf])] for f in each.potentials) for each in (solution, alone)
        ]
        torch.testing.assert_close(*firsts, atol=1e-6, rtol=0)
    torch.testing.assert_close(solution.pair_marginal(2, 0)[kept[2]][:, kept[0]], alone.pair_marginal(2, 0))
    assert solution.coupling().shape == sizes
    torch.testing.assert_close(solution.coupling().sum(), torch.tensor(1.0, dtype=torch.float64), atol=1e-7, rtol=0)


def test_points_of_weight_zero_have_zero_gradient():
    sizes = (5, 4, 6)
    views = [view.requires_grad_() for view in unit_views(sizes, 0)]
    weights = weights_with_zeros(sizes, 0)

    def value(*points):
        problem = as_cost("sqeuclidean")(points)
        return m3g.solve(problem, epsilon=0.3, tol=1e-10, weights=weights, differentiable=True).value

    assert torch.autograd.gradcheck(value, views)
    for gradient, weight in zip(torch.autograd.grad(value(*views), views), weights):
        assert bool((gradient[weight == 0] == 0).all())


def test_weights_of_a_batch_must_be_zero_at_the_same_points():
    views = unit_views((4, 4), 0, batch=(2,))
    weights = [torch.tensor([0.0, 0.5, 0.25, 0.25], dtype=torch.float64)] * 2
    solution = m3g.solve(as_cost("cv")(views), epsilon=0.1, tol=1e-8, weights=weights)
    torch.testing.assert_close(solution.marginal(0), weights[0].expand(2, 4), atol=1e-7, rtol=0)
    other = [torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0.5, 0.5])]
    with pytest.raises(ValueError, match="zero at the same points in the whole batch"):
        m3g.solve(as_cost("cv")([view[:, :2] for view in views]), epsilon=0.1, weights=other)


@pytest.mark.parametrize("smallest", [1e-60, 1e-30, 1e-12])
@pytest.mark.parametrize("k", [2, 3])
def test_weights_may_be_below_the_range_of_float32(k, smallest):
    weights = [torch.tensor([smallest, 1.0], dtype=torch.float64)] * k
    views = [view.float() for view in unit_views((2,) * k, 3)]
    solution = m3g.solve(as_cost("cv")(views), epsilon=0.1, weights=weights)
    true = m3g.solve(as_cost("cv")([view.double() for view in views]), epsilon=0.1, weights=weights)
    assert solution.converged
    torch.testing.assert_close(solution.value.double(), true.value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("smallest", [0.0, 1e-60, 1e-13, 1e-9, 1e-4])
def test_a_linear_program_measures_its_error(smallest):
    weights = [torch.tensor([smallest, 1.0, 0.5], dtype=torch.float64)] * 3
    cost = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    solution = m3g.solve(cost, epsilon=0, solver="linear-program", weights=weights)
    error = sum(float((solution.marginal(l) - weights[l]).abs().sum()) for l in range(3))
    assert error < 1e-6
    assert float(solution.error) == pytest.approx(error, abs=1e-12)


def test_invalid_weights_are_named():
    cost = torch.rand(2, 2)
    for wrong, message in [
        ([0.0, 0.0], "weights must have a positive sum, got only zeros in view 0"),
        ([-0.1, 1.1], "weights must be finite numbers of at least 0, got -0.1 in view 0"),
        ([1e-200, 1.0], "weights must be 0 or at least 1e-100 times their sum, got 1e-200 in view 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            m3g.solve(cost, epsilon=0.1, weights=[torch.tensor(wrong, dtype=torch.float64)] * 2)
