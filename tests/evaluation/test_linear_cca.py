"""Linear CCA with its settings chosen on held-out training rows."""

import math

import pytest
import torch

from m3g.evaluation import LinearCCA, linear_cca, mean_reciprocal_rank
from m3g.evaluation.linear_cca import CentredView, Span
from m3g.evaluation.retrieval import retrieval


def shared_factors(n, widths, *, noise, seed=0, factors=6):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, factors, generator=random)
    views = []
    for width in widths:
        mix = torch.randn(factors, width, generator=random)
        views.append(hidden @ mix + noise * torch.randn(n, width, generator=random))
    return views


def recall(cca, views):
    return float(retrieval(torch.stack(cca(views))).recall[1][0, 1])


def test_views_with_more_columns_than_rows_are_aligned():
    views = shared_factors(160, (400, 300, 500), noise=2.0)
    cca = LinearCCA([view[:120] for view in views], size=16)
    assert recall(cca, [view[120:] for view in views]) > 0.9
    assert all(part.shape == (width, 16) for part, width in zip(cca.maps, (400, 300, 500)))


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


def test_missing_entries_are_ignored():
    views = shared_factors(400, (10, 12, 14), noise=0.5)
    mask = torch.rand(3, 400, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[0, ~mask.any(0)] = True
    damaged = [torch.where(present.unsqueeze(1), view, torch.nan) for view, present in zip(views, mask)]
    fresh = [view[:100] for view in shared_factors(400, (10, 12, 14), noise=0.5)]
    assert recall(LinearCCA(damaged, mask, size=6), fresh) > 0.8 * recall(LinearCCA(views, size=6), fresh)


def test_constant_views_and_few_rows_are_not_an_error():
    cca = LinearCCA([torch.zeros(4, 3), torch.randn(4, 5)], size=8)
    assert all(bool(part.isfinite().all()) for part in cca([torch.zeros(4, 3), torch.randn(4, 5)]))
    with pytest.raises(ValueError, match="at least 2 rows with two views or more"):
        LinearCCA([torch.randn(3, 2)] * 2, torch.tensor([[1, 1, 0], [0, 0, 1]]).bool(), size=2)


@pytest.mark.parametrize("value", [0.1, -3.3])
@pytest.mark.parametrize("width", [8, 400])  # fewer and more columns than rows
def test_features_that_are_constant_in_the_used_rows_have_no_effect(value, width):
    views = shared_factors(300, (width, 8), noise=2.0)
    longer = [torch.cat([view, torch.full((300, 2), value)], dim=1) for view in views]
    cca = LinearCCA([view[:299] for view in longer], size=4)
    assert all(float(part[-2:].abs().max()) < 1e-6 for part in cca.maps)
    for other, same in zip(LinearCCA([view[:299] for view in views], size=4).maps, cca.maps):
        torch.testing.assert_close(same[:-2].abs(), other.abs(), rtol=0.02, atol=0.02)


def test_reciprocal_ranks_exclude_missing_points():
    views = torch.eye(4).expand(2, 4, 4).clone()
    views[1, 0] = views[1, 1]  # the partner of point 0 ties with that of point 1
    assert mean_reciprocal_rank(views) < 1
    assert mean_reciprocal_rank(views, torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]]).bool()) == 1
    assert math.isnan(mean_reciprocal_rank(views, torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).bool()))


@pytest.mark.parametrize("columns", [7, 4096])
def test_span_of_a_wide_view_keeps_its_inner_products(monkeypatch, columns):
    monkeypatch.setattr(linear_cca, "COLUMNS", columns)
    random = torch.Generator().manual_seed(0)
    present = torch.arange(12) != 3
    scale = 1 + torch.rand(40, generator=random)
    view = CentredView.of(torch.randn(12, 40, generator=random), present)
    span, scaled = view.span(scale), view.scaled(scale)
    assert (scaled[3] == 0).all()
    assert span.coordinates.shape == (12, 12)
    torch.testing.assert_close(span.coordinates @ span.coordinates.T, scaled @ scaled.T, atol=1e-4, rtol=1e-5)
    directions = torch.randn(12, 4, generator=random)
    projected = scaled @ view.in_features(span, scale, directions)
    torch.testing.assert_close(projected, span.coordinates @ directions, atol=1e-4, rtol=1e-4)
    assert CentredView.of(view.values.T, torch.ones(40, dtype=torch.bool)).span(scale[:12]).coordinates.shape == (
        40,
        12,
    )


@pytest.mark.parametrize("columns", [7, 4096])
@pytest.mark.parametrize("missing", [False, True])
def test_maps_of_wide_views_are_those_of_all_columns(monkeypatch, columns, missing):
    random = torch.Generator().manual_seed(1)
    shared = torch.randn(60, 5, generator=random)
    views = [shared @ torch.randn(5, 90, generator=random) + torch.randn(60, 90, generator=random) for _ in range(3)]
    mask = torch.rand(3, 60, generator=random) > 0.2 if missing else None
    monkeypatch.setattr(linear_cca, "COLUMNS", columns)
    reduced = LinearCCA(views, mask, size=5)
    monkeypatch.setattr(CentredView, "span", lambda view, scale: Span(view.scaled(scale)))
    whole = LinearCCA(views, mask, size=5)
    assert (reduced.standardized, reduced.ridge) == (whole.standardized, whole.ridge)
    assert reduced.reciprocal_rank == pytest.approx(whole.reciprocal_rank, abs=1e-3)
    for l in range(3):  # products of maps do not depend on the signs of the components
        ours, theirs = (cca.maps[0] @ cca.maps[l].T for cca in (reduced, whole))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)
