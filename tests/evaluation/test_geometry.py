"""Alignment, uniformity and effective rank of embeddings."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.evaluation import alignment, effective_rank, polymatching_accuracy, uniformity


@settings(deadline=None, max_examples=20)
@given(k=st.integers(2, 4), n=st.integers(2, 12), seed=st.integers(0, 50))
def test_alignment_and_uniformity_by_their_formulas(k, n, seed):
    views = torch.randn(k, n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit = views / views.norm(dim=-1, keepdim=True)
    pairs = [(l, m) for l in range(k) for m in range(l + 1, k)]
    expected = sum(float((unit[l] - unit[m]).square().sum(-1).mean()) for l, m in pairs) / len(pairs)
    assert alignment(views) == pytest.approx(expected)
    spread = []
    for view in unit:
        terms = [math.exp(-2 * float((view[i] - view[j]).square().sum())) for i in range(n) for j in range(n) if i != j]
        spread.append(math.log(sum(terms) / len(terms)))
    assert uniformity(views) == pytest.approx(sum(spread) / k)


def test_collapse_lowers_the_effective_rank_and_raises_the_uniformity():
    spread = torch.randn(2, 500, 8, generator=torch.Generator().manual_seed(0))
    collapsed = torch.ones(2, 500, 8) + 1e-4 * spread
    assert effective_rank(collapsed) < 1.1 < 7 < effective_rank(spread) <= 8
    assert uniformity(spread) < -2 < -0.01 < uniformity(collapsed) <= 0


def test_masked_points_are_ignored():
    views = torch.randn(2, 20, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[1, 10:] = False
    wrong = torch.where(mask[..., None], views, torch.full_like(views, 77.0))
    assert alignment(wrong, mask=mask) == pytest.approx(alignment(views[:, :10]))
    both = (uniformity(views[:1].expand(2, -1, -1)) + uniformity(views[1:, :10].expand(2, -1, -1))) / 2
    assert uniformity(wrong, mask=mask) == pytest.approx(both)
    both = (effective_rank(views[:1].expand(2, -1, -1)) + effective_rank(views[1:, :10].expand(2, -1, -1))) / 2
    assert effective_rank(wrong, mask=mask) == pytest.approx(both)
    assert polymatching_accuracy(wrong, mask=mask) == polymatching_accuracy(views[:, :10])
    disjoint = torch.tensor([[True, False], [False, True]])
    with pytest.raises(ValueError, match="two views"):
        alignment(views[:, :2], mask=disjoint)


def test_uniformity_of_many_points_uses_a_subsample():
    views = torch.randn(2, 900, 6, generator=torch.Generator().manual_seed(0))
    assert uniformity(views, limit=300) == pytest.approx(uniformity(views), abs=0.05)
