"""Learned temperatures of the contrastive losses."""

from __future__ import annotations

import pytest
import torch

from m3g import losses

NAMES = losses.available()


def seeded():
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("name", ["infonce-pwe", "symile", "gram", "triangle", "polyview", "mv-infonce", "mv-dhel"])
def test_the_gradient_of_a_learned_temperature_is_correct(name):
    views = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def value(temperature):
        generator = {"generator": seeded()} if name == "symile" else {}
        loss = losses.build(name, temperature=temperature, learn_temperature=True, **generator).double()
        return loss, loss(views)

    loss, loss_value = value(0.3)
    loss_value.backward()
    (parameter,) = loss.parameters()
    step = 1e-5  # of the exponent s in t = 0.01 + exp(s)
    above, below = (value(0.01 + 0.29 * torch.tensor(sign * step).exp().item())[1].item() for sign in (1, -1))
    assert parameter.grad.item() == pytest.approx((above - below) / (2 * step), rel=2e-2)
    assert abs(parameter.grad.item()) > 1e-3


def test_the_temperature_stays_above_its_floor():
    temperature = losses.Temperature(0.02, learn=True)
    with torch.no_grad():
        temperature.exponent.fill_(-50.0)
    assert temperature().item() == pytest.approx(0.01)
    with pytest.raises(ValueError, match=r"temperature must be more than 0.01 when it is learned, got 0.005"):
        losses.Temperature(0.005, learn=True)


@pytest.mark.parametrize("name", [name for name in NAMES if "temperature" in losses.options(name)])
def test_the_temperature_is_printed(name):
    assert "0.0625" in repr(losses.build(name, temperature=0.0625))
    assert "0.0625" not in repr(losses.build(name))


@pytest.mark.parametrize("name", [name for name in NAMES if "learn_temperature" in losses.options(name)])
def test_a_learned_temperature_is_saved(name):
    views = torch.randn(3, 12, 5, generator=torch.Generator().manual_seed(0))
    warm, other = (losses.build(name, learn_temperature=True, temperature=value) for value in (0.5, 0.125))
    for loss in (warm, other):
        if hasattr(loss, "generator"):
            loss.generator = torch.Generator().manual_seed(0)
    assert warm(views) != other(views)
    for loss in (warm, other):
        if hasattr(loss, "generator"):
            loss.generator = torch.Generator().manual_seed(0)
    other.load_state_dict(warm.state_dict())
    torch.testing.assert_close(warm(views), other(views))
