"""Scores of `m3g reproduce views`, compared with literal implementations."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import m3g
from m3g.evaluation import Embedded, Probe
from m3g.experiments.views.metrics import (
    few_labels,
    measure,
    moved_probe,
    recall,
    recall_from_rest,
    validation,
    with_missing,
)


def _points(k=3, n=12, d=4, seed=0, mask=None):
    random = torch.Generator().manual_seed(seed)
    views = normalize(torch.randn(k, n, d, generator=random, dtype=torch.float64), dim=-1)
    return Embedded(views, labels=torch.arange(n) % 3, mask=mask)


MASK = torch.rand(3, 12, generator=torch.Generator().manual_seed(3)) > 0.3
MASK[0] |= ~MASK.any(0)


@pytest.mark.parametrize("mask", [None, MASK])
def test_recall_is_the_literal_count(mask):
    points = _points(mask=mask)
    present = points.present
    for by_class in (False, True):
        pairs = []
        for l, m in itertools.permutations(range(3), 2):
            correct = []
            for i in range(12):
                if present[l, i] and present[m, i]:
                    close = [j for j in range(12) if present[m, j]]
                    best = max(close, key=lambda j: float(points.views[l][i] @ points.views[m][j]))
                    correct.append(points.labels[best] == points.labels[i] if by_class else best == i)
            pairs.append(np.mean(correct))
        assert recall(points, by_class=by_class) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("mask", [None, MASK])
def test_recall_from_the_rest_is_the_literal_count(mask):
    points = _points(mask=mask)
    present, recalls = points.present, []
    for m in range(3):
        correct = []
        for i in range(12):
            others = [l for l in range(3) if l != m and present[l, i]]
            if not present[m, i]:
                continue
            rest = sum((points.views[l][i] for l in others), torch.zeros(4, dtype=torch.float64))
            close = [j for j in range(12) if present[m, j]]
            correct.append(bool(others) and max(close, key=lambda j: float(rest @ points.views[m][j])) == i)
        recalls.append(np.mean(correct))
    assert recall_from_rest(points, by_class=False) == pytest.approx(np.mean(recalls))


def test_scores_use_the_query_of_a_cost():
    """The third view is the product of the first two, so their mean does not determine it."""
    signs = torch.randint(2, (2, 60, 16), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    views = torch.stack([*signs, signs[0] * signs[1]]) / 4
    points = Embedded(views, labels=torch.arange(60) % 2)
    cost = m3g.MultilinearProduct()
    assert recall_from_rest(points, by_class=False, readout=cost) == 1
    assert recall_from_rest(points, by_class=False) < 0.2
    assert validation(points, points, by_class=False, readout=cost)["recall_rest"] == 1
    tested = measure(points, points, by_class=False, seed=0, readout=cost)
    assert tested["recall_rest"] == tested["absent"]["0"]["recall_rest"] == 1


def test_few_labels_are_scored_by_the_nearest_class_mean():
    points = _points(n=30)
    x, labels = points.views[0], points.labels
    scores = []
    for draw in range(5):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(draw)).tolist()
        centres = []
        for c in range(3):
            rows = [i for i in order if labels[i] == c][:2]
            centres.append(normalize(sum(x[i] for i in rows), dim=-1))
        scores.append(np.mean([int(torch.stack(centres).mv(x[i]).argmax()) == labels[i] for i in range(30)]))
    assert few_labels(x, labels, x, labels, shots=2, seed=0) == pytest.approx(np.mean(scores))


def test_the_moved_probe_requires_a_common_space():
    labels = torch.arange(60) % 3
    same = normalize(torch.eye(3)[labels] + 0.01 * torch.randn(60, 3), dim=-1)
    for other, expected in ((same, 1.0), (same[:, [1, 2, 0]], 0.0)):
        points = Embedded(torch.stack([same, other]), labels=labels)
        assert moved_probe(points, points) == expected


def test_scores_at_a_drop_rate_of_0_are_those_of_complete_rows():
    points = _points(n=40)
    scores = with_missing(points, points, 0.0, by_class=False, seed=0)
    assert scores["recall_rest"] == pytest.approx(recall_from_rest(points, by_class=False))
    assert scores["linear"] == Probe(points.mean, points.labels, kind="ridge").accuracy(points.mean, points.labels)
