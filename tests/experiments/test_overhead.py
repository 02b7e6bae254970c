"""Time and memory that `m3g reproduce overhead` and `m3g bench` measure."""

import torch
from torch import nn

from m3g.experiments import overhead


def test_saved_bytes_counts_each_activation_once_and_no_parameter():
    net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 5))
    x = torch.randn(7, 10)
    # The gradient of the first weight requires the input; those of tanh and the second weight the output of tanh.
    assert overhead.saved_bytes(lambda: net(x).sum(), net.parameters()) == 4 * (7 * 10 + 7 * 20)
    with torch.no_grad():
        assert overhead.saved_bytes(lambda: net(x).sum(), net.parameters()) == 0


def test_the_loss_is_timed():
    assert 0 < overhead.loss_seconds(3, n=8, d=4, epsilon=0.1, repeats=1) < 60
    assert 0 < overhead.loss_seconds(3, n=8, d=4, temperature=0.1, repeats=1) < 60


def test_the_fraction_of_the_loss_is_computed(monkeypatch):
    monkeypatch.setattr(overhead, "network_seconds", lambda **_: (2.0, 1.0))
    monkeypatch.setattr(overhead, "loss_seconds", lambda k, **_: float(k))
    rows = overhead.overhead(n=5, d=4, ks=[2, 3], epsilon=0.1, images=1, repeats=1)
    assert rows[0] == {"k": 2, "loss": 2.0, "network": 30.0, "share": 2 / 32}
    assert rows[1]["network"] == 45.0
