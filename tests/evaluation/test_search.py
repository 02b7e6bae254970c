"""Nearest objects to a query."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g.evaluation.search import search


@settings(deadline=None, max_examples=20)
@given(k=st.integers(2, 4), n=st.integers(3, 12), q=st.integers(1, 4), seed=st.integers(0, 1000))
def test_agrees_with_a_literal_loop(k, n, q, seed):
    random = torch.Generator().manual_seed(seed)
    objects = torch.randn(k, n, 5, generator=random, dtype=torch.float64)
    queries = torch.randn(k, q, 5, generator=random, dtype=torch.float64)
    masks = [torch.rand(k, m, generator=random) < 0.6 for m in (n, q)]
    for mask in masks:
        mask[0] |= ~mask.any(0)

    def vector(points, mask, i):
        present = [torch.nn.functional.normalize(points[l, i], dim=0) for l in range(k) if mask[l, i]]
        return torch.stack(present).mean(0)

    objects[~masks[0]] = torch.nan  # missing entries are not read
    nearest = search(queries, objects, query_mask=masks[1], mask=masks[0], top=n)
    for i in range(q):
        query = vector(queries, masks[1], i)
        scores = torch.stack([torch.cosine_similarity(query, vector(objects, masks[0], j), dim=0) for j in range(n)])
        assert torch.allclose(nearest.similarities[i], scores.sort(descending=True).values)
        assert torch.allclose(scores[nearest.indices[i]], nearest.similarities[i])


def test_an_object_may_be_excluded():
    objects = torch.eye(3).expand(2, 3, 3)
    nearest = search(objects[:, :2], objects, top=2, without=torch.tensor([0, -1]))
    assert 0 not in nearest.indices[0]
    assert nearest.indices[1, 0] == 1


@pytest.mark.parametrize(
    ("queries", "options", "message"),
    [
        (torch.ones(2, 1, 4), {}, "queries must be"),
        (torch.ones(2, 1, 3), {"top": 6}, "top must be at most 5"),
        (torch.ones(2, 1, 3), {"top": 5, "without": torch.tensor([0])}, "top must be at most 4"),
        (torch.ones(2, 1, 3), {"query_mask": torch.zeros(2, 1, dtype=torch.bool)}, "at least one view"),
        (torch.ones(2, 1, 3), {"readout": "concat"}, "readout must be one of 'mean'"),
    ],
)
def test_wrong_arguments_are_rejected(queries, options, message):
    with pytest.raises(ValueError, match=message):
        search(queries, torch.randn(2, 5, 3), **{"top": 3, **options})


def test_a_cost_compares_the_query_with_the_views_missing_from_it():
    signs = torch.randn(2, 40, 16, generator=torch.Generator().manual_seed(0)).sign()
    objects = torch.stack([*signs, signs.prod(0)])  # any two views are independent
    given = torch.tensor([[True], [True], [False]]).expand(3, 40)
    spoiled = torch.where(given.unsqueeze(-1), objects, float("nan"))
    rows = torch.arange(40)
    by_product = search(spoiled, objects, query_mask=given, top=1, readout=m3g.MultilinearProduct())
    assert bool((by_product.indices[:, 0] == rows).all())
    torch.testing.assert_close(by_product.similarities[:, 0], torch.ones(40))
    whole = search(objects, objects, top=1, readout=m3g.MultilinearProduct())
    assert bool((whole.indices[:, 0] == rows).all())


def test_an_object_without_a_view_to_compare_is_ranked_last():
    objects = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[2, 1] = False
    given = torch.tensor([[True], [False], [False]])
    mask[1, 1] = False
    nearest = search(objects[:, 1:2], objects, query_mask=given, mask=mask, top=4, readout=m3g.MultilinearProduct())
    assert nearest.indices[0, -1] == 1
    assert nearest.similarities[0, -1] == -1


def test_an_approximate_search_with_too_few_candidates_is_exact(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    objects = torch.randn(2, 3000, 8, generator=torch.Generator().manual_seed(0))
    # Only 32 of 54 cells are searched, so that the index returns fewer candidates than results are required.
    options = {"top": 2900, "without": torch.tensor([0])}
    exact, approximate = (search(objects[:, :1], objects, **options, approximate=flag) for flag in (False, True))
    assert torch.equal(exact.indices, approximate.indices)
