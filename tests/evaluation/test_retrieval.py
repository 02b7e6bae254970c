"""Ranks and recall of retrieval between views."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.evaluation import retrieval


def slow_ranks(query, gallery, i):
    """The rank of gallery[i] for one query, counted one by one."""
    scores = [float(torch.cosine_similarity(query, other, dim=0)) for other in gallery]
    return 1 + sum(score > scores[i] for score in scores)


@settings(deadline=None, max_examples=15)
@given(k=st.integers(2, 4), n=st.integers(2, 14), seed=st.integers(0, 100))
def test_recall_and_median_rank_agree_with_counting(k, n, seed):
    views = torch.randn(k, n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    result = retrieval(views)
    for l in range(k):
        for m in range(k):
            ranks = torch.tensor([slow_ranks(views[l, i], views[m], i) for i in range(n)])
            for level in (1, 5, 10):
                assert result.recall[level][l, m] == pytest.approx(float((ranks <= level).double().mean()))
            assert result.median_rank[l, m] == float(ranks.median())


def test_collapsed_embeddings_score_no_better_than_chance():
    result = retrieval(torch.ones(2, 100, 4))
    assert result.recall[1][0, 1] == 0
    assert result.median_rank[0, 1] == 50.5


def test_missing_points_are_neither_queries_nor_candidates():
    views = torch.randn(2, 30, 6, generator=torch.Generator().manual_seed(0))
    views[1] += 2 * views[0]
    mask = torch.rand(2, 30, generator=torch.Generator().manual_seed(1)) > 0.3
    mask[0] |= ~mask.any(0)
    both = mask.all(0)
    noisy = torch.where(mask[..., None], views, torch.full_like(views, 1e3))
    result = retrieval(noisy, mask=mask)
    # The gallery contains points without the view of the query, so the expected value is computed explicitly.
    gallery = views[1][mask[1]]
    position = {int(i): j for j, i in enumerate(mask[1].nonzero())}
    ranks = torch.tensor([slow_ranks(views[0, i], gallery, position[int(i)]) for i in both.nonzero().flatten()])
    assert result.recall[1][0, 1] == pytest.approx(float((ranks <= 1).double().mean()))


def test_views_without_common_points_are_an_error():
    mask = torch.tensor([[True, False], [False, True]])
    with pytest.raises(ValueError, match="at least one object with both views"):
        retrieval(torch.randn(2, 2, 3), mask=mask)


def test_the_mean_over_rows_is_the_recall_also_with_missing_views():
    random = torch.Generator().manual_seed(0)
    points = torch.randn(1, 60, 6, generator=random) + 0.8 * torch.randn(3, 60, 6, generator=random)
    mask = torch.rand(3, 60, generator=random) > torch.tensor([[0.0], [0.3], [0.7]])
    off_diagonal = ~torch.eye(3, dtype=torch.bool)
    for present in (None, mask):
        result = retrieval(points, mask=present)
        for level in (1, 5, 10):
            assert float(result.contributions[level].nanmean()) == pytest.approx(
                float(result.recall[level][off_diagonal].mean())
            )
    alone = mask.sum(0) < 2
    assert bool(alone.any())
    assert torch.equal(retrieval(points, mask=mask).contributions[1].isnan(), alone)
