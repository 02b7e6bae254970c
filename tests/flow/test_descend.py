"""The gradient flow and its pictures."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g import losses
from m3g.flow import descend as flow


@settings(deadline=None, max_examples=10)
@given(n=st.integers(2, 6), k=st.integers(2, 4), seed=st.integers(0, 1000))
def test_infonce_of_distances_is_infonce_on_the_sphere(n, k, seed):
    points = flow.start(n, k, space="sphere", seed=seed)
    theirs = losses.build("infonce-pwe", temperature=0.2, symmetric=True)
    ours = flow.distance_infonce(points, temperature=0.2)
    assert ours.item() == pytest.approx(theirs(points).item())


@pytest.mark.parametrize("loss", ["m3g", "infonce-pwe"])
@pytest.mark.parametrize("space", ["plane", "sphere"])
def test_the_descent_ends_at_the_true_matching(space, loss):
    setting = flow.Setting(space=space, steps=80, rate=0.02)
    moments = flow.descend(flow.start(4, 3, space=space), loss, setting)
    assert [moment.step for moment in moments] == list(range(81))
    assert moments[0].matched < 1 == moments[-1].matched
    assert moments[-1].gap < 0.2 * moments[0].gap
    assert moments[-1].loss < moments[0].loss
    first = flow.first_matched_step(moments)
    assert moments[first - 1].matched < 1
    assert all(moment.matched == 1 for moment in moments[first:])
    if space == "sphere":
        assert torch.allclose(moments[-1].points.norm(dim=-1), torch.ones(3, 4, dtype=torch.float64))


def test_two_losses_start_from_the_same_points():
    points = flow.start(3, 3)
    first, second = (flow.descend(points, loss, flow.Setting(steps=2)) for loss in flow.PLANE_LOSSES)
    assert torch.equal(first[0].points, second[0].points)
    assert not torch.equal(first[1].points, second[1].points)
    assert first[0].gap == pytest.approx(second[0].gap)


def test_a_partly_correct_matching_is_reported_as_a_fraction():
    points = torch.tensor([[0.0, 0], [1, 0], [5, 0]]).expand(2, 3, 2).clone()
    points[1, :2] = points[1, [1, 0]]  # two objects of the second view are exchanged
    tuples, matched = flow.best_tuples(points, "sqeuclidean")
    assert sorted(map(tuple, tuples.tolist())) == [(0, 1), (1, 0), (2, 2)]
    assert matched == pytest.approx(1 / 3)


def test_a_temperature_sets_the_entropy_of_the_gap_unless_epsilon_does():
    points = flow.start(4, 3, space="sphere")
    slope = m3g.CircularVariance().slope(3)
    by_temperature = flow.gap_of(points, flow.Setting(space="sphere", temperature=0.3))
    torch.testing.assert_close(by_temperature, flow.gap_of(points, flow.Setting(space="sphere", epsilon=0.3 * slope)))
    both = flow.gap_of(points, flow.Setting(space="sphere", temperature=0.3, epsilon=0.05))
    torch.testing.assert_close(both, flow.gap_of(points, flow.Setting(space="sphere")))
