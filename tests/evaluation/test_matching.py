"""Polymatching accuracy."""

import pytest
import torch

from m3g.evaluation import polymatching_accuracy
from m3g.evaluation.matching import matched_objects


@pytest.mark.parametrize("k", [2, 3, 4])
def test_polymatching_accuracy_decreases_with_noise(k):
    random = torch.Generator().manual_seed(k)
    points = torch.randn(1, 32, 16, generator=random)
    noise = torch.randn(k, 32, 16, generator=random)
    scores = [polymatching_accuracy(points + scale * noise, batch_size=8) for scale in (0.0, 1.0, 20.0)]
    assert scores[0] == 1.0
    assert scores[0] >= scores[1] > scores[2]
    assert scores[2] < 0.4  # chance is (1/8)^(k-1)


def test_polymatching_of_many_views_uses_smaller_batches():
    views = torch.randn(1, 12, 16, generator=torch.Generator().manual_seed(0)).expand(9, 12, 16)
    assert polymatching_accuracy(views) == 1.0  # 16 points would make 16^9 tuples


def test_polymatching_detects_a_swapped_pair():
    views = torch.eye(6).expand(3, 6, 6).clone()
    views[2, [0, 1]] = views[2, [1, 0]]  # points 0 and 1 of one view are exchanged
    assert polymatching_accuracy(views, batch_size=6) == pytest.approx(4 / 6)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1, 3] = False
    matched = matched_objects(views, mask=mask, batch_size=5)
    torch.testing.assert_close(matched, torch.tensor([0, 0, 1, torch.nan, 1, 1]).double(), equal_nan=True)
    with pytest.raises(ValueError, match="at least 2 objects"):
        polymatching_accuracy(torch.randn(2, 1, 3))
    with pytest.raises(ValueError, match="batch_size must be at least 2, got 1"):
        polymatching_accuracy(views, batch_size=1)
