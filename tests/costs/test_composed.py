"""Sums of costs and costs of some features: their tensor, their structure, their derivatives, and their text form."""

import pytest
import torch
from torch.nn.functional import normalize

import m3g
import reference
from m3g.costs import as_cost

CV, CSD, PRODUCT = m3g.CircularVariance(), m3g.CircularStd(), m3g.MultilinearProduct()


CHAIN = m3g.PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 2.0})


COMPOSED = {
    "scaled cv": 2.5 * CV,
    "scaled csd": CSD * 0.5,
    "scaled product": 3 * PRODUCT,
    "scaled chain": 2 * CHAIN,
    "scaled function": 2 * as_cost(lambda x, y, z: (x * y + z).square().sum(-1)),
    "sum of pairs": CV + 0.5 * m3g.PairwiseCost("sqeuclidean"),
    "pairs and a chain": CHAIN + 0.3 * CV,
    "cv and product": 0.5 * CV + 0.5 * PRODUCT,
    "sum of sums": 0.5 * (CV + 2 * CSD) + PRODUCT,
    "halves": CV[:0.5] + PRODUCT[0.5:],
    "range of a sum": (CV + 2 * PRODUCT)[1:],
}


LITERAL = {
    "scaled cv": lambda *z: 2.5 * reference.circular_variance(*z),
    "scaled csd": lambda *z: 0.5 * reference.circular_std(*z),
    "scaled product": lambda *z: 3 * reference.multilinear_product(*z),
    "scaled chain": lambda x, y, z: 2 * ((1 - x @ y) + 2 * (1 - y @ z)),
    "scaled function": lambda x, y, z: 2 * (x * y + z).square().sum(),
    "sum of pairs": lambda *z: (
        reference.circular_variance(*z) + 0.5 * sum((x - y).square().sum() for x in z for y in z) / 2
    ),
    "pairs and a chain": lambda x, y, z: (1 - x @ y) + 2 * (1 - y @ z) + 0.3 * reference.circular_variance(x, y, z),
    "cv and product": lambda *z: 0.5 * reference.circular_variance(*z) + 0.5 * reference.multilinear_product(*z),
    "sum of sums": lambda *z: (
        0.5 * reference.circular_variance(*z) + reference.circular_std(*z) + reference.multilinear_product(*z)
    ),
    "halves": lambda *z: (
        reference.circular_variance(*[normalize(x[:2], dim=0) for x in z])
        + reference.multilinear_product(*[normalize(x[2:], dim=0) for x in z])
    ),
    "range of a sum": lambda *z: (
        reference.circular_variance(*[normalize(x[1:], dim=0) for x in z])
        + 2 * reference.multilinear_product(*[normalize(x[1:], dim=0) for x in z])
    ),
}


PAIRWISE = ["scaled cv", "scaled chain", "sum of pairs", "pairs and a chain"]


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 2, 3)], ids=str)
@pytest.mark.parametrize("name", COMPOSED)
def test_the_dense_tensor_equals_the_formula(name, sizes):
    generator = torch.Generator().manual_seed(0)
    views = [normalize(torch.randn(n, 4, generator=generator, dtype=torch.float64), dim=-1) for n in sizes]
    problem = COMPOSED[name](views)
    expected = reference.cost_tensor(LITERAL[name], views)
    torch.testing.assert_close(problem.dense()[0], expected)
    torch.testing.assert_close(problem.slab(slice(1, 2))[0], expected[1:2])
    rows = [torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0, 2])]
    torch.testing.assert_close(problem.select(rows).dense()[0], expected[:2, 1:2][:, :, [0, 2]])


@pytest.mark.parametrize("name", COMPOSED)
def test_the_gap_and_its_derivatives_are_correct(name):
    views = reference.noisy_views(3, 2, 4, seed=3)
    options = {"cost": COMPOSED[name], "epsilon": 0.8, "tol": 1e-10}
    gap = m3g.matching_gap(views, **options)
    torch.testing.assert_close(gap, reference.gap(reference.cost_tensor(LITERAL[name], views), 0.8), atol=1e-7, rtol=0)
    leaf = views.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: m3g.matching_gap(x, **options), leaf, check_forward_ad=True, atol=1e-6)
    assert torch.autograd.gradgradcheck(lambda x: m3g.matching_gap(x, **options), leaf, atol=1e-5)


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_sum_of_pairwise_costs_is_pairwise(name):
    views = torch.stack([reference.noisy_views(3, 4, 4, seed=seed) for seed in range(2)])
    problem = COMPOSED[name](views)
    assert problem.by_pairs
    assert m3g.workload(problem).solver == "factored"
    first, second = (m3g.solve(problem, epsilon=0.5, tol=1e-10, solver=name) for name in ("factored", "sinkhorn"))
    torch.testing.assert_close(first.value, second.value)
    torch.testing.assert_close(first.pair_marginal(0, 2), second.pair_marginal(0, 2), atol=1e-8, rtol=0)


def test_a_scaled_circular_variance_is_still_a_circular_variance():
    problem = (2 * CV)(torch.rand(3, 4, 5))
    assert problem.kernel_form == "resultant"
    assert problem.factor == 2


def test_masks_apply_to_every_term():
    views = reference.noisy_views(3, 4, 6)
    mask = torch.tensor([[True, False, True, True], [True, True, False, True], [True, True, True, True]])
    points = torch.where(mask.unsqueeze(-1), views, 0.0)
    cost = CV[:2] + m3g.PairwiseCost("sqeuclidean")[2:4] + 0.5 * PRODUCT[4:]
    parts = [normalize(points[..., features], dim=-1) for features in (slice(2), slice(2, 4), slice(4, 6))]
    expected = (
        CV(parts[0], mask=mask).dense()
        + m3g.PairwiseCost("sqeuclidean")(parts[1], mask=mask).dense()
        + 0.5 * PRODUCT(parts[2], mask=mask).dense()
    )
    torch.testing.assert_close(cost(points, mask=mask).dense(), expected)
    leaf = views.clone().requires_grad_()
    m3g.matching_gap(leaf, cost=cost, mask=mask, epsilon=0.5).backward()
    assert bool(torch.isfinite(leaf.grad).all())
    assert float(leaf.grad[0, 1].abs().max()) == 0


@pytest.mark.parametrize("neutral", ["coulomb", m3g.PairwiseCost("cosine", neutral=0.5)])
def test_a_neutral_cost_does_not_change_how_other_terms_treat_imputed_points(neutral):
    views, mask = reference.noisy_views(3, 4, 6), torch.ones(3, 4, dtype=torch.bool)
    mask[0, 1] = mask[2, 3] = False
    neutral = m3g.costs.as_cost(neutral)
    problem = (0.5 * neutral + 2 * PRODUCT[1:]).of_imputed(views, mask)
    expected = 0.5 * neutral(views, mask=mask).dense() + 2 * PRODUCT[1:](views).dense()
    torch.testing.assert_close(problem.dense(), expected)


def test_a_point_without_features_in_the_range_has_a_finite_gradient():
    views = reference.noisy_views(3, 3, 4)
    views[1, 1, 2:] = 0
    leaf = views.requires_grad_()
    (gradient,) = torch.autograd.grad(
        m3g.matching_gap(leaf, cost=CV[:2] + PRODUCT[2:], epsilon=0.5), leaf, create_graph=True
    )
    assert bool(torch.isfinite(gradient).all())
    assert bool(torch.isfinite(torch.autograd.grad(gradient.square().sum(), leaf)[0]).all())


def test_sums_over_slabs_add_up_to_the_full_sum(monkeypatch):
    views = reference.noisy_views(3, 5, 4)
    expected = COMPOSED["cv and product"](views).dense()
    monkeypatch.setattr("m3g.costs.composed.LARGE", 1)
    torch.testing.assert_close(COMPOSED["cv and product"](views).dense(), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_cost(3), "cost must be one of .* got 3"),
        (lambda: -1 * CV, "the weight of a cost must be a positive finite number, got -1"),
        (lambda: CV + 1, "every term of a sum must be a cost, got int"),
        (lambda: CV[1], "features must be a range start:stop, got 1"),
        (lambda: CV[::2], "features must be a range start:stop"),
        (lambda: CV[-2:], "start must be a whole number of features or a fraction from 0.0 to 1.0, got -2"),
        (lambda: CV[:1.5], "stop must be a whole number of features or a fraction"),
        (lambda: CV[:9](torch.rand(2, 3, 8)), "cost must have a range within the 8 features of the views, got .*:9"),
        (lambda: PRODUCT[8:](torch.rand(2, 3, 8)), "cost must have a range within the 8 features"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_slopes_of_composed_costs_are_weighted_sums():
    assert (2 * CV[:0.5] + PRODUCT[0.5:]).slope(3) == 2 * CV.slope(3) + PRODUCT.slope(3)
    assert (CV + m3g.PairwiseCost("coulomb")).slope(3) is None


def test_a_sum_of_pairwise_costs_is_sampled():
    views = reference.noisy_views(4, 10, 8, noise=0.7).requires_grad_()
    cost = CV[:0.5] + 0.2 * m3g.PairwiseCost("cosine")
    exact, loss = m3g.M3GLoss(0.3, cost=cost), m3g.M3GLoss(0.3, cost=cost, solver=m3g.Sampled(seed=0))
    value, true = loss(views), exact(views)
    assert abs(value - true) < 4 * loss.last.standard_error + 1e-3
    (gradient,), (expected,) = torch.autograd.grad(value, views), torch.autograd.grad(true, views)
    assert (gradient - expected).norm() < 4 * loss.last.relative_gradient_error * expected.norm() + 1e-3


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e25])
def test_a_range_is_normalised_at_any_scale(scale):
    views = reference.noisy_views(3, 4, 6).float()
    expected = (CV[:0.5] + PRODUCT[0.5:])(views).dense()
    torch.testing.assert_close((CV[:0.5] + PRODUCT[0.5:])(views * scale).dense(), expected)
