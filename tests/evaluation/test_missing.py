"""Evaluation with missing views."""

import math
from dataclasses import replace

import pytest
import torch

from m3g.evaluation import Embedded, evaluate, retrieval, view_subsets
from m3g.evaluation import missing as missing_views
from m3g.evaluation.missing import without_views
from m3g.evaluation.plots import plot_missing
from pictures import colours


def points(n, seed, *, k=3, masked=False, noise=0.3, width=8):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centre = 2 * torch.eye(width)[labels] + torch.randn(n, width, generator=random)
    embeddings = centre + noise * torch.randn(k, n, width, generator=random)
    mask = None
    if masked:
        mask = torch.rand(k, n, generator=random) > 0.3
        mask[0] = True
    return Embedded(embeddings, list(embeddings), labels, mask)


def test_subsets_are_distinct_and_limited_per_size():
    assert len(view_subsets(5)) == 31
    for k in (7, 12):
        subsets = view_subsets(k)
        assert len(set(subsets)) == len(subsets)
        sizes = [len(subset) for subset in subsets]
        assert [sizes.count(size) for size in range(1, k + 1)] == [min(10, math.comb(k, s)) for s in range(1, k + 1)]
        assert subsets == view_subsets(k)


@pytest.mark.parametrize("masked", [False, True])
def test_one_view_matches_the_recall_matrix_and_all_views_the_probe(masked):
    train, test = points(150, 0, masked=masked), points(96, 1, masked=masked)
    scores = without_views(train, test)
    numbers = evaluate(train, test, polymatching=False, transfer=False).numbers
    matrix = retrieval(test.embeddings, mask=test.mask).recall[1]
    for l, part in enumerate(scores["subsets"][:3]):
        assert part["views"] == [l]
        others = [float(matrix[l, m]) for m in range(3) if m != l]
        assert part["recall_at_1"] == pytest.approx(sum(others) / 2)
    whole = scores["subsets"][-1]["linear"], scores["curve"]["linear"][0]
    assert whole == pytest.approx([numbers["linear_mean"]] * 2)
    assert scores["subsets"][-1]["recall_at_1"] is None
    assert "linear_raw" not in scores["curve"]


def test_recall_increases_with_views_and_decreases_with_missing_entries(tmp_path):
    train, test = points(300, 0, noise=0.8, k=4), points(300, 1, noise=0.8, k=4)
    raw = tuple(Embedded(features=given.features, labels=given.labels) for given in (train, test))
    scores = without_views(train, test, raw=raw)
    for name in ("linear", "linear_raw", "recall_at_1"):
        by_size = [[p[name] for p in scores["subsets"] if len(p["views"]) == size] for size in (1, 3)]
        assert sum(by_size[1]) / len(by_size[1]) > sum(by_size[0]) / len(by_size[0]) + 0.02, name
        assert scores["curve"][name][0] > scores["curve"][name][-1] + 0.02, name
        assert min(scores["curve"][name]) > scores["chance"]["linear" if "linear" in name else name]
    assert scores["every_subset"]
    assert colours(plot_missing(scores, tmp_path / "missing.png")) >= 2


def test_labels_and_a_whole_view_may_be_missing(tmp_path):
    mask = torch.ones(3, 60, dtype=torch.bool)
    mask[2] = False
    test = replace(points(60, 1), labels=None, mask=mask)
    scores = without_views(Embedded(test.embeddings), test)
    assert set(scores["curve"]) == {"share", "recall_at_1"}
    assert scores["subsets"][2] == {"views": [2], "recall_at_1": None}
    assert scores["subsets"][0]["recall_at_1"] > scores["chance"]["recall_at_1"] == 1 / 60
    plot_missing(scores, tmp_path / "missing.png")


def test_many_rows_are_subsampled(monkeypatch):
    monkeypatch.setattr(missing_views, "MAX_ROWS", 20)
    assert without_views(points(60, 0), points(60, 1))["chance"]["recall_at_1"] == pytest.approx(1 / 20)
