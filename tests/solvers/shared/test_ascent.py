"""The loop of the dual ascent, on concave functions of one variable per problem."""

import math
from typing import NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from m3g.solvers.shared import ascent
from m3g.solvers.shared.ascent import ascend, fixed_ascent, init
from m3g.solvers.shared.solver import Result


class Point(NamedTuple):
    log_scaling: torch.Tensor
    error: torch.Tensor
    height: torch.Tensor


class Concave:
    """The function -log cosh(x - peak), whose slope -tanh(x - peak) is the error; full Newton steps overshoot."""

    def __init__(self, *peaks, stretch=1.0):
        self.peaks, self.stretch, self.points = torch.tensor(peaks).unsqueeze(1), stretch, []

    def evaluate(self, log_scaling):
        self.points.append(log_scaling)
        offset = log_scaling - self.peaks
        return Point(log_scaling, offset.tanh().abs().squeeze(1), -(offset.cosh().log()))

    def direction(self, point, stretch=1.0):
        offset = point.log_scaling - self.peaks
        return -self.stretch * offset.sinh() * offset.cosh()

    def shortened(self, point, move):
        return move / 4


class Distant(Concave):
    """The same function with steps of length 1, so that a distant peak requires longer ones."""

    def direction(self, point, stretch=1.0):
        return (self.peaks - point.log_scaling).clamp(-stretch, stretch)


def start(*values):
    return torch.tensor(values).unsqueeze(1)


def test_steps_that_decrease_the_dual_are_shortened():
    dual = Concave(0.0, 1.0)
    state, result = ascend(dual, init(dual, start(2.0, 1.1)), tol=1e-6, max_steps=60)
    assert result is Result.CONVERGED
    torch.testing.assert_close(state.current.log_scaling, dual.peaks, atol=1e-6, rtol=0)
    # The first Newton step goes from 2 to 2 - sinh 4 / 2, and is divided by 4. The second problem is not stepped back.
    first, shortened = dual.points[1], dual.points[2]
    assert float(first[0]) == pytest.approx(2 - math.sinh(4) / 2)
    assert float(shortened[0]) == pytest.approx(2 - math.sinh(4) / 8)
    assert float(shortened[1]) == float(first[1])


def test_the_limit_of_steps_is_doubled_after_many_steps():
    dual = Distant(60.0, 3.0)
    state, result = ascend(dual, init(dual, start(0.0, 0.0)), tol=1e-6, max_steps=60)
    assert result is Result.CONVERGED
    assert state.num_steps <= ascent.MANY_STEPS + 10
    torch.testing.assert_close(state.current.log_scaling, dual.peaks)


def test_the_ascent_ends_out_of_steps():
    dual = Concave(0.0)
    state, result = ascend(dual, init(dual, start(0.9)), tol=1e-6, max_steps=2)
    assert result is Result.OUT_OF_STEPS
    assert state.num_steps == len(dual.points) == 2


def test_a_step_that_remains_worse_is_shortened_a_limited_number_of_times():
    dual = Concave(0.0, stretch=-1.0)  # in the wrong direction
    state, result = ascend(dual, init(dual, start(0.5)), tol=1e-6, max_steps=1000, max_decrease=0.0)
    assert result is Result.OUT_OF_STEPS
    assert state.shortenings == ascent.MAX_SHORTENINGS


def test_a_nan_at_the_first_point_is_out_of_range():
    dual = Concave(0.0)
    _, result = ascend(dual, init(dual, start(math.nan)), tol=1e-6, max_steps=10)
    assert result is Result.OUT_OF_RANGE


def test_a_fixed_ascent_takes_its_steps_without_reading_values():
    with FakeTensorMode():  # fake tensors have no values
        fixed_ascent(Concave(0.0), start(0.5), 5)
    dual = Concave(0.0)
    state = fixed_ascent(dual, start(0.5), 5)
    assert len(dual.points) == state.num_steps == 5
    assert float(state.current.error) < 1e-6


@pytest.mark.parametrize("check_every", [2, 3])
def test_the_error_is_read_every_few_steps(check_every):
    dual = Concave(0.0)
    state, result = ascend(dual, init(dual, start(0.5)), tol=1e-6, max_steps=50, check_every=check_every)
    assert result is Result.CONVERGED
    assert (state.num_steps - 1) % check_every == 0
