"""All scores of an evaluation."""

from dataclasses import replace

import pytest
import torch

import m3g
from m3g.evaluation import METRICS, Embedded, evaluate


def points(n, seed, *, masked=False):
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centre = 2 * torch.eye(8)[labels] + torch.randn(n, 8, generator=random)
    embeddings = centre + 0.3 * torch.randn(3, n, 8, generator=random)
    features = [torch.randn(n, width, generator=random) for width in (2, 3, 4)]
    mask = None
    if masked:
        mask = torch.rand(3, n, generator=random) > 0.2
        mask[0] = True
        embeddings = torch.where(mask[..., None], embeddings, 0.0)
    return Embedded(embeddings, features, labels, mask)


@pytest.mark.parametrize("masked", [False, True])
def test_all_metrics_are_evaluated_at_once(masked):
    report = evaluate(points(150, 0, masked=masked), points(96, 1, masked=masked), paper_probe=True)
    assert list(report.numbers) == [
        name for name in METRICS if not name.startswith(("few_shot", "linear_held_out", "linear_query"))
    ]
    assert all(torch.isfinite(torch.tensor(value)) for value in report.numbers.values())
    assert all(type(value) is float for value in report.numbers.values())
    assert set(report.matrices) == {"transfer", "recall_at_1", "recall_at_5", "recall_at_10", "median_rank"}
    assert all(matrix.shape == (3, 3) for matrix in report.matrices.values())
    assert report.numbers["linear_mean"] > 0.8
    assert report.numbers["linear_concat"] < 0.6  # the features are noise
    assert report.numbers["recall_at_1"] <= report.numbers["recall_at_5"] <= report.numbers["recall_at_10"]


def test_few_shot_probes_require_enough_rows_per_class():
    train, test = points(330, 0), points(60, 1)
    features = list(train.embeddings), list(test.embeddings)
    report = evaluate(
        Embedded(features=features[0], labels=train.labels),
        Embedded(features=features[1], labels=test.labels),
        few_shot=True,
    )
    assert list(report.numbers) == ["linear_concat", "few_shot_10", "few_shot_50"]
    assert report.numbers["few_shot_50"] > 0.8


def test_missing_parts_are_omitted():
    train, test = points(90, 0), points(60, 1)
    unlabelled = evaluate(Embedded(train.embeddings), Embedded(test.embeddings), polymatching=False)
    assert not any(name.startswith(("linear", "knn", "poly")) for name in unlabelled.numbers)
    raw = evaluate(
        Embedded(features=train.features, labels=train.labels),
        Embedded(features=test.features, labels=test.labels),
    )
    assert list(raw.numbers) == ["linear_concat"]
    with pytest.raises(ValueError, match="got neither"):
        evaluate(Embedded(), Embedded())


def test_without_complete_objects_only_the_polymatching_is_omitted():
    train, test = (
        replace(points(n, seed), mask=torch.arange(3)[:, None] != torch.arange(n) % 3) for n, seed in ((90, 0), (60, 1))
    )
    report = evaluate(train, test, missing=True)
    assert "polymatching" not in report.numbers
    assert report.numbers["linear_mean"] > 0.6  # chance is 1 / 3
    assert report.numbers["recall_at_1"] > report.chance["recall_at_1"]
    assert report.missing["curve"]["linear"][0] > 0.6


def test_evaluation_uses_the_query_of_the_cost():
    generator = torch.Generator().manual_seed(0)
    signs = torch.randn(2, 60, 16, generator=generator).sign()
    points = Embedded(embeddings=torch.stack([*signs, signs.prod(0)]), labels=torch.arange(60) % 3)
    by_mean = evaluate(points, points, polymatching=False)
    by_query = evaluate(points, points, polymatching=False, readout=m3g.MultilinearProduct())
    assert by_mean.numbers["recall_from_others"] < 0.2
    assert by_query.numbers["recall_from_others"] == 1
    assert by_query.numbers["linear_mean"] == by_mean.numbers["linear_mean"]
    assert "linear_query" in by_query.numbers
    assert "linear_query" not in by_mean.numbers
    assert set(by_query.chance) == set(by_query.numbers)
