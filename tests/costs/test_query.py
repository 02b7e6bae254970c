"""The query of a cost that is linear in each view: its inner products are the costs of the candidates."""

from __future__ import annotations

import pytest
import torch

import m3g
from m3g.costs import as_cost

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
