"""Number of views that a step compares: all if that is fast, or no slower than the encoders."""

from __future__ import annotations

import pytest

import m3g
from m3g import losses
from m3g.training import Config
from m3g.training.loop.build import subsets
from m3g.training.loop.subsets import exact_seconds, sampled_seconds


@pytest.mark.parametrize(
    ("k", "n", "encoder", "size"),
    [
        (4, 64, 0.0, 4),  # quick
        (5, 64, 0.0, 4),
        (5, 64, 0.1, 4),  # slower than the encoders, exactly and sampled
        (5, 64, 0.5, 5),  # sampled
        (5, 32, 0.05, 5),  # exact
        (12, 64, 0.5, 4),
        (12, 64, 2.0, 12),
    ],
)
def test_all_views_at_once_if_the_solver_takes_no_longer_than_the_encoders(k, n, encoder, size):
    selected = subsets(Config(), m3g.M3GLoss(), k=k, batch_size=n, encoder_seconds=encoder)
    assert selected.size == size


def test_a_loss_that_cannot_be_sampled_counts_only_its_exact_solver():
    sizes = [
        subsets(Config(), loss, k=5, batch_size=64, encoder_seconds=0.5).size
        for loss in (m3g.M3GLoss(), losses.KLLoss(), m3g.M3GLoss(solver="factored"), m3g.M3GLoss(cost="product"))
    ]
    assert sizes == [5, 4, 4, 4]


def test_the_sampled_solver_is_the_faster_one_for_many_tuples():
    assert exact_seconds(4, 64) < sampled_seconds(4, 64)
    assert exact_seconds(6, 64) > sampled_seconds(6, 64)
