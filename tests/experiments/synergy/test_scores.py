"""Scores by which the last view is retrieved."""

import pytest
import torch
from torch.nn.functional import normalize

from m3g.experiments.synergy.scores import SCORES, area_score, mean_score, product_score, recall, selected, volume_score


@pytest.fixture
def views():
    torch.manual_seed(0)
    return [normalize(torch.randn(6, 8, dtype=torch.float64), dim=-1) for _ in range(3)]


def test_scores_follow_their_formulas(views):
    first, second, last = views
    for i in range(6):
        for j in range(6):
            a, b, c = first[i], second[i], last[j]
            gram = torch.stack([a, b, c]) @ torch.stack([a, b, c]).T
            assert volume_score(*views)[i, j] == pytest.approx(-float(torch.linalg.det(gram)))
            assert product_score(*views)[i, j] == pytest.approx(float((a * b * c).sum()))
            assert mean_score(*views)[i, j] == pytest.approx(float((a + b) @ c))
            u, v = a - c, b - c
            area = (u @ u) * (v @ v) - (u @ v) ** 2
            assert area_score(*views)[i, j] == pytest.approx(-4 * float(area))


@pytest.mark.parametrize("name", SCORES)
def test_candidates_per_query_score_like_shared_ones(name, views):
    first, second, last = views
    per_query = SCORES[name](first, second, last.expand(6, 6, 8))
    assert torch.allclose(per_query, SCORES[name](first, second, last))


def test_recall_counts_rows_or_classes(views):
    same = [views[0]] * 3
    assert recall(mean_score, same, None) == 1.0
    shifted = [views[0], views[0], views[0].roll(1, 0)]
    assert recall(mean_score, shifted, None) == 0.0
    assert recall(mean_score, shifted, torch.zeros(6)) == 1.0


def test_selected_compares_with_the_candidates_of_the_row(views):
    others = -views[0].unsqueeze(1)
    assert selected(mean_score, [views[0]] * 3, others) == 1.0
    assert selected(mean_score, [views[0], views[0], -views[0]], views[0].unsqueeze(1)) == 0.0
