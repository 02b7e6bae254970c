"""The problem of every cost against its formula, tuple by tuple, and the queries of costs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference
from m3g.costs import as_cost

SHAPES = st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(1, 5), st.integers(0, 100))


def pairwise(ground):
    def cost(*z):
        return sum(ground(z[l], z[m]) for l in range(len(z)) for m in range(l + 1, len(z)))

    return cost


LITERAL = {
    "cv": reference.circular_variance,
    "cv-algorithm2": reference.algorithm_2,
    "csd": reference.circular_std,
    "product": reference.multilinear_product,
    "sqeuclidean": pairwise(lambda x, y: (x - y).square().sum()),
    "cosine": pairwise(lambda x, y: 1 - (x @ y) / (x.norm() * y.norm())),
    "coulomb": pairwise(lambda x, y: 1 / (x - y).norm().clamp(min=1e-3)),
}


@pytest.mark.parametrize("name", LITERAL)
@settings(max_examples=15, deadline=None)
@given(shape=SHAPES)
def test_the_dense_tensor_equals_the_formula(name, shape):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    torch.testing.assert_close(as_cost(name)(views).dense()[0], reference.cost_tensor(LITERAL[name], views))


@pytest.mark.parametrize("name", LITERAL)
def test_matched_is_the_mean_of_the_diagonal(name):
    views = reference.noisy_views(3, 5, 4)
    problem = as_cost(name)(views)
    diagonal = problem.dense()[0][(torch.arange(5),) * 3]
    torch.testing.assert_close(problem.matched()[0], diagonal.mean())


@settings(max_examples=20, deadline=None)
@given(
    shape=SHAPES,
    offset=st.sampled_from([0.0, 1.0, 1000.0]),
    distance=st.sampled_from([2e-3, 0.2]),
    ground=st.sampled_from(["sqeuclidean", "coulomb"]),
)
def test_close_points_keep_their_distance_in_float32(shape, offset, distance, ground):
    """|x|² + |y|² - 2⟨x, y⟩ loses all digits where the points are far from the origin or close to each other."""
    _, n, d, seed = shape
    generator = torch.Generator().manual_seed(seed)
    base = offset + torch.randn(1, n, d, generator=generator)
    views = base + distance * torch.randn(2, n, d, generator=generator)
    computed = m3g.PairwiseCost(ground)(views).dense()[0]
    exact = reference.cost_tensor(LITERAL[ground], views.double())
    torch.testing.assert_close(computed.double(), exact, rtol=1e-5, atol=1e-6 if ground == "sqeuclidean" else 1e-4)


def test_coulomb_is_accurate_for_nearly_coincident_unit_vectors():
    angle = 2 * torch.asin(torch.tensor(1e-3, dtype=torch.float64))
    views = torch.stack([torch.tensor([[1.0, 0.0]]).double(), torch.stack([angle.cos(), angle.sin()])[None]]).float()
    assert float(m3g.PairwiseCost("coulomb")(views).dense()) == pytest.approx(500.0, rel=1e-4)


LINEAR = [
    "cv",
    "cv-algorithm2",
    "product",
    "cosine",
    "sqeuclidean",
    m3g.PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 0.5}),
    0.3 * m3g.CircularVariance() + 2 * m3g.MultilinearProduct(),
    m3g.CircularVariance()[:0.5] + m3g.MultilinearProduct()[0.5:],
]


def unit(*shape, seed=0):
    points = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(points, dim=-1)


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("cost", LINEAR, ids=str)
def test_the_score_of_a_candidate_is_its_product_with_the_query(cost, k):
    cost, views, others = as_cost(cost), unit(k, 1, 6), unit(5, 6, seed=1)
    for view in range(k):
        tuple_views = [views[l] if l != view else others for l in range(k)]
        cost_of = cost(tuple_views).dense().flatten()
        query = cost.query(views, view)
        score = cost.slope(k) * (cost.candidates(others) @ query[0])
        torch.testing.assert_close(score - score[0], cost_of[0] - cost_of)


@pytest.mark.parametrize("cost", LINEAR, ids=str)
def test_values_at_missing_points_and_in_the_view_itself_are_not_read(cost):
    views, mask = unit(3, 4, 6), torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2] = False
    broken = views.clone()
    broken[1, 2] = float("nan")
    broken[0] = float("nan")
    query = as_cost(cost).query(broken, 0, mask=mask)
    assert query.isfinite().all()
    torch.testing.assert_close(query[[0, 1, 3]], as_cost(cost).query(views, 0)[[0, 1, 3]])


def test_the_query_uses_the_present_views_only():
    views, mask = unit(3, 2, 4), torch.tensor([[True, True], [False, True], [True, False]])
    mean, product = (as_cost(name).query(views, 0, mask=mask) for name in ("cv", "product"))
    torch.testing.assert_close(mean, torch.stack([views[2, 0], views[1, 1]]))
    torch.testing.assert_close(product, mean)  # the product of one view is that view


@pytest.mark.parametrize("cost", ["csd", "coulomb", lambda *z: sum(z).sum(-1)])
def test_a_cost_that_is_not_linear_has_no_query(cost):
    with pytest.raises(ValueError, match="cost must be linear in each view to define a query"):
        as_cost(cost).query(unit(3, 4, 6), 0)
