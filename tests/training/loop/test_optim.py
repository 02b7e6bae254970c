"""Schedules, the scaling rules and the parameter groups."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from m3g.nets import build_net
from m3g.training.loop.optim import (
    AdamSettings,
    adamw,
    cosine,
    parameter_groups,
    scale_adam,
    scale_momentum,
    warmup_cosine,
)

PAPER = AdamSettings(6.5e-4, (0.9, 0.95), 1e-8)


@given(total=st.integers(2, 500), warmup_fraction=st.floats(0, 1), peak=st.floats(1e-6, 1), ratio=st.floats(0, 1))
def test_learning_rate_rises_to_its_peak_and_falls_to_its_floor(total, warmup_fraction, peak, ratio):
    warmup, floor = int(warmup_fraction * (total - 1)), peak * ratio
    values = [warmup_cosine(t, total=total, warmup=warmup, peak=peak, floor=floor) for t in range(total + 1)]
    assert max(values) == pytest.approx(peak)
    assert values[-1] == pytest.approx(floor)
    assert values[:warmup] == sorted(values[:warmup])
    assert values[warmup:] == pytest.approx(sorted(values[warmup:], reverse=True))


def test_the_cosine_schedule_follows_the_paper():
    for step in range(11):
        expected = 0.4 + (0.04 - 0.4) * (1 + math.cos(math.pi * step / 10)) / 2
        assert cosine(step, total=10, start=0.04, end=0.4) == pytest.approx(expected)


def test_adam_rule_for_four_times_the_batch():
    scaled = scale_adam(PAPER, 4.0)
    assert scaled.learning_rate == pytest.approx(2 * PAPER.learning_rate)
    assert scaled.betas == pytest.approx((0.6, 0.8))
    assert scaled.eps == pytest.approx(PAPER.eps / 2)


@given(kappa=st.floats(0.01, 10))
def test_adam_rule_and_its_inverse(kappa):
    restored = scale_adam(scale_adam(PAPER, kappa), 1 / kappa)
    assert restored.learning_rate == pytest.approx(PAPER.learning_rate)
    assert restored.betas == pytest.approx(PAPER.betas, abs=1e-6)


def test_a_negative_beta_is_an_error_with_the_limit():
    with pytest.raises(ValueError, match="at least 1/10 of the run's batch size, got 1/16"):
        scale_adam(PAPER, 16.0)


def test_momentum_is_raised_to_the_scale_of_the_batch():
    assert scale_momentum(0.99, 3.0) == pytest.approx(0.99**3)
    with pytest.raises(ValueError, match="momentum must be"):
        scale_momentum(1.5, 2.0)


def test_biases_and_one_dimensional_parameters_do_not_decay():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Conv1d(1, 2, 3))
    net[0].weight.requires_grad_(False)
    decaying, exempt = parameter_groups(net)
    assert [p.shape for p in decaying["params"]] == [(2, 1, 3)]
    assert len(exempt["params"]) == 4
    assert all(group["weight_decay"] == 0 for group in adamw(net, PAPER).param_groups)


def test_a_network_without_parameters_is_an_error():
    with pytest.raises(ValueError, match="at least one parameter"):
        adamw(torch.nn.Identity(), PAPER)


def test_an_encoder_may_have_a_separate_learning_rate():
    net = build_net([(3,), (5,)], encoder=[{"kind": "mlp", "learning_rate": 1e-5}, {"kind": "mlp"}])
    groups = [group for group in parameter_groups(net) if group["params"]]
    assert [(group["own_rate"], group["decays"]) for group in groups] == [
        (None, True), (None, False), (1e-5, True), (1e-5, False)
    ]  # fmt: skip
    slow = {id(p) for group in groups if group["own_rate"] for p in group["params"]}
    assert slow == {id(p) for p in net.encoders[0].parameters()}
    assert sum(len(group["params"]) for group in groups) == len(list(net.parameters()))
