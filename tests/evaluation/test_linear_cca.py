"""Linear CCA with its settings chosen on held-out training rows."""

import math

import pytest
import torch

from m3g.evaluation import LinearCCA, linear_cca, mean_reciprocal_rank
from m3g.evaluation.retrieval import retrieval


def shared_factors(n, widths, *, noise, seed=0, factors=6):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, factors, generator=random)
    views = []
    for width in widths:
        mix = torch.randn(factors, width, generator=random)
        views.append(hidden @ mix + noise * torch.randn(n, width, generator=random))
    return views


def recall(found, views):
    return float(retrieval(torch.stack(found(views))).recall[1][0, 1])


def test_more_columns_than_rows_still_find_partners():
    views = shared_factors(160, (400, 300, 500), noise=2.0)
    found = LinearCCA([view[:120] for view in views], size=16)
    assert recall(found, [view[120:] for view in views]) > 0.9
    assert all(part.shape == (width, 16) for part, width in zip(found.maps, (400, 300, 500)))


def test_the_original_scale_is_kept_if_it_is_informative():
    views = shared_factors(300, (8, 8), noise=0.3)
    random = torch.Generator().manual_seed(1)
    # many features of noise of a small scale: standardising makes them as large as the others
    wide = [torch.cat([view, 0.01 * torch.randn(300, 400, generator=random)], dim=1) for view in views]
    deviations = [view.std(0, unbiased=False) for view in wide]
    given = [(view - view.mean(0)) / part for view, part in zip(wide, deviations)]
    kept = LinearCCA([view[:200] for view in given], size=8, divisors=deviations)
    lost = LinearCCA([view[:200] for view in given], size=8)
    test = [view[200:] for view in given]
    assert not kept.standardized
    assert recall(kept, test) > recall(lost, test) + 0.1


def test_missing_entries_have_no_effect():
    views = shared_factors(400, (10, 12, 14), noise=0.5)
    mask = torch.rand(3, 400, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[0, ~mask.any(0)] = True
    damaged = [torch.where(here.unsqueeze(1), view, torch.nan) for view, here in zip(views, mask)]
    fresh = [view[:100] for view in shared_factors(400, (10, 12, 14), noise=0.5)]
    assert recall(LinearCCA(damaged, mask, size=6), fresh) > 0.8 * recall(LinearCCA(views, size=6), fresh)


def test_constant_views_and_few_rows_are_no_error():
    found = LinearCCA([torch.zeros(4, 3), torch.randn(4, 5)], size=8)
    assert all(bool(part.isfinite().all()) for part in found([torch.zeros(4, 3), torch.randn(4, 5)]))
    with pytest.raises(ValueError, match="at least 2 rows with two views or more"):
        LinearCCA([torch.randn(3, 2)] * 2, torch.tensor([[1, 1, 0], [0, 0, 1]]).bool(), size=2)


def test_reciprocal_ranks_exclude_missing_points():
    views = torch.eye(4).expand(2, 4, 4).clone()
    views[1, 0] = views[1, 1]  # the partner of point 0 ties with that of point 1
    assert mean_reciprocal_rank(views) < 1
    assert mean_reciprocal_rank(views, torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]]).bool()) == 1
    assert math.isnan(mean_reciprocal_rank(views, torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).bool()))


def test_coordinates_of_a_wide_view_keep_its_inner_products():
    random = torch.Generator().manual_seed(0)
    view = torch.randn(12, 40, generator=random)
    view[3] = 0.0  # a missing row
    reduced = linear_cca._coordinates(view)
    assert reduced.shape == (12, 12)
    torch.testing.assert_close(reduced @ reduced.T, view @ view.T, atol=1e-4, rtol=1e-5)
    assert linear_cca._coordinates(view.T).shape == (40, 12)


def test_settings_for_wide_views_are_those_of_all_columns(monkeypatch):
    random = torch.Generator().manual_seed(1)
    shared = torch.randn(60, 5, generator=random)
    views = [shared @ torch.randn(5, 90, generator=random) + torch.randn(60, 90, generator=random) for _ in range(3)]
    reduced = LinearCCA(views, size=5)
    monkeypatch.setattr(linear_cca, "_coordinates", lambda view: view)
    whole = LinearCCA(views, size=5)
    assert (reduced.standardized, reduced.ridge) == (whole.standardized, whole.ridge)
    assert reduced.reciprocal_rank == pytest.approx(whole.reciprocal_rank, abs=1e-3)
    for ours, theirs in zip(reduced.maps, whole.maps):
        torch.testing.assert_close(ours, theirs)
