"""Embedded objects: selection, joining, and the vector of an object from some of its views."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import m3g
from m3g.evaluation import Embedded, read_out
from m3g.evaluation.retrieval import recall_at_1, recall_from_others


def points(k=3, n=10, d=4, seed=0, masked=True):
    random = torch.Generator().manual_seed(seed)
    mask = torch.rand(k, n, generator=random) > 0.4
    mask[0] |= ~mask.any(0)
    return Embedded(
        torch.randn(k, n, d, generator=random, dtype=torch.float64),
        [torch.randn(n, d + l, generator=random) for l in range(k)],
        labels=torch.arange(n) % 3,
        mask=mask if masked else None,
        index=torch.arange(n) + 100,
        split=["train"] * n,
        view_names=[f"v{l}" for l in range(k)],
        class_names=["a", "b", "c"],
    )


def test_joined_parts_equal_the_whole():
    whole = points()
    again = Embedded.join([whole.take(torch.arange(4)), whole.take(torch.arange(10) >= 4)])
    for name in ("embeddings", "labels", "mask", "index"):
        assert torch.equal(getattr(again, name), getattr(whole, name)), name
    assert all(torch.equal(a, b) for a, b in zip(again.features, whole.features, strict=True))
    assert again.split == whole.split
    assert again.label_name(4) == "b"


def test_a_selection_of_views_keeps_the_objects_that_have_one_of_them():
    whole = points()
    part = whole.only([2, 1])
    rows = whole.mask[[2, 1]].any(0)
    assert part.view_names == ["v2", "v1"]
    assert part.index.tolist() == whole.index[rows].tolist()
    assert torch.equal(part.embeddings, whole.embeddings[[2, 1]][:, rows])
    assert [view.shape[1] for view in part.features] == [6, 5]


def test_readouts_agree_with_literal_loops():
    whole = points()
    units = normalize(whole.embeddings, dim=-1).numpy()
    spoiled = torch.where(whole.mask[..., None], whole.embeddings, torch.nan)
    for view in (None, 1):
        visible = [[l for l in range(3) if whole.mask[l, i] and l != view] for i in range(10)]
        rows = [i for i in range(10) if visible[i]]
        mean = np.stack([np.mean([units[l, i] for l in visible[i]], axis=0) for i in rows])
        assert read_out(spoiled, whole.mask, view=view)[rows].numpy() == pytest.approx(mean)
        variance = read_out(spoiled, whole.mask, view=view, readout=m3g.CircularVariance())
        assert variance[rows].numpy() == pytest.approx(mean)
        product = np.stack([np.prod([2 * units[l, i] for l in visible[i]], axis=0) for i in rows])
        query = read_out(spoiled, whole.mask, view=view, readout=m3g.MultilinearProduct())[rows].numpy()
        assert 2 * query == pytest.approx(product)
        side = read_out(spoiled, whole.mask, view=view, readout="concat").numpy().reshape(10, 3, 4)
        for i in range(10):
            for l in range(3):
                assert side[i, l] == pytest.approx(whole.embeddings[l, i].numpy() if l in visible[i] else np.zeros(4))
    called = read_out(spoiled, whole.mask, readout=lambda views, mask: views.sum(0) / mask.sum(0)[:, None])
    assert torch.allclose(called, read_out(spoiled, whole.mask))
    with pytest.raises(ValueError, match="readout must be one of 'concat', 'mean', got 'median'"):
        read_out(whole.embeddings, readout="median")


@pytest.mark.parametrize("cost", [m3g.CircularVariance(), m3g.MultilinearProduct()])
@pytest.mark.parametrize("masked", [False, True])
def test_a_cost_retrieves_by_its_own_scores(cost, masked):
    whole = points(n=12, masked=masked)
    units = normalize(whole.embeddings, dim=-1)
    present = whole.present
    for m in range(3):
        correct = []
        for i in range(12):
            others = [l for l in range(3) if l != m and present[l, i]]
            if not others or not present[m, i]:
                continue
            rows = [j for j in range(12) if present[m, j]]
            tuples = [torch.stack([units[l, i] if l != m else units[m, j] for l in (*others, m)]) for j in rows]
            costs = [float(cost(tuple_[:, None]).dense()) for tuple_ in tuples]
            correct.append(rows[int(np.argmin(costs))] == i)
        assert recall_from_others(whole, m, readout=cost) == pytest.approx(np.mean(correct))


def test_by_class_any_object_of_the_class_is_correct():
    x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    every = torch.ones(3, dtype=torch.bool)
    gallery = x[[1, 0, 2]]  # the first two are exchanged
    assert recall_at_1(x, gallery, queried=every, searched=every) == pytest.approx(1 / 3)
    assert recall_at_1(x, gallery, queried=every, searched=every, labels=torch.tensor([0, 0, 1])) == 1
    assert recall_at_1(x, gallery, queried=every, searched=~every) is None


def test_the_mean_readout_counts_present_views_only():
    views = torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]]])
    assert torch.allclose(read_out(views), torch.tensor([[0.5, 0.5]]))
    mask = torch.tensor([[True], [False]])
    assert torch.allclose(read_out(views, mask), torch.tensor([[1.0, 0.0]]))
