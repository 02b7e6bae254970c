"""Chance and raw features for every score."""

import pytest
import torch

from evaluation.test_missing import points
from m3g.evaluation import Embedded, alignment, effective_rank, evaluate, retrieval, uniformity
from m3g.evaluation.baselines import chance


def test_chance_is_the_score_of_random_embeddings():
    random = torch.Generator().manual_seed(0)
    mask = torch.rand(3, 600, generator=random) > 0.3
    mask[0] = True
    labels = (torch.rand(600, generator=random) < 0.3).long()
    views = torch.randn(3, 600, 16, generator=random)
    expected = chance(Embedded(views, labels=labels), Embedded(views, labels=labels, mask=mask))
    assert expected["linear_mean"] == pytest.approx(float((labels == 0).float().mean()))
    assert expected["few_shot"] == 0.5
    assert expected["alignment"] == pytest.approx(alignment(views), abs=0.05)
    assert expected["uniformity"] == pytest.approx(uniformity(views), abs=0.02)
    assert expected["effective_rank"] == pytest.approx(effective_rank(views), rel=0.01)
    results = retrieval(views, mask=mask)
    off_diagonal = ~torch.eye(3, dtype=torch.bool)
    assert expected["median_rank"] == pytest.approx(float(results.median_rank[off_diagonal].mean()), rel=0.1)
    assert expected["recall_at_10"] == pytest.approx(float(results.recall[10][off_diagonal].mean()), abs=0.01)
    assert expected["polymatching"] == 16.0**-2


@pytest.mark.parametrize("masked", [False, True])
def test_every_score_has_chance_and_probes_have_raw_features(masked):
    train, test = points(150, 0, masked=masked), points(96, 1, masked=masked)
    raw = tuple(Embedded(features=given.features, labels=given.labels, mask=given.mask) for given in (train, test))
    report = evaluate(train, test, raw=raw, few_shot=True, paper_probe=True)
    assert report.chance.keys() == report.numbers.keys()
    assert report.raw["linear_concat"] == report.numbers["linear_concat"]  # here the features are the inputs
    assert report.raw["recall_at_1"] == report.numbers["recall_at_1"]
    assert report.raw["few_shot_10"] == report.numbers["few_shot_10"]
    assert {"linear_views", "knn_mean", "paper_probe"} <= report.raw.keys()
    assert "linear_transfer" not in report.raw
    assert evaluate(train, test).raw == {}


def test_raw_views_of_different_widths_have_no_scores_across_views():
    train, test = points(60, 0), points(60, 1)
    raw = tuple(
        Embedded(features=[part[:, : 3 + l] for l, part in enumerate(given.features)], labels=given.labels)
        for given in (train, test)
    )
    assert set(evaluate(train, test, raw=raw, polymatching=False).raw) == {
        "linear_mean", "linear_views", "linear_concat", "knn_mean",
    }  # fmt: skip
