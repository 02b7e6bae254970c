"""The loop without Lightning draws the batches of `m3g train`, from any step."""

import itertools

import pytest
import torch
from torch import nn

from m3g.data import MultipleFeatures
from m3g.training.loop.light import batches, clip, descend


def test_batches_continue_where_they_stopped():
    data = MultipleFeatures(views=["zernike", "morphology"], batch_size=600, seed=3)
    per_epoch = data.sampler().num_steps
    whole = [batch["index"] for batch in itertools.islice(batches(data), 2 * per_epoch + 1)]
    rest = [batch["index"] for batch in itertools.islice(batches(data, start=per_epoch + 1), per_epoch)]
    assert all(torch.equal(one, other) for one, other in zip(whole[per_epoch + 1 :], rest, strict=True))
    assert torch.equal(whole[0], next(iter(data.train_dataloader()))["index"])


def test_every_step_uses_its_learning_rate():
    x = nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD([x], lr=1.0)
    rates = []
    steps = descend(optimizer, lambda step: x.square() / 2, steps=4, start=2, rate=lambda step: 0.1 * step)
    for _ in steps:
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.2, 0.3])
    assert float(x.detach()) == pytest.approx(0.8 * 0.7)


def test_gradients_are_clipped_only_with_a_norm():
    x = nn.Parameter(torch.zeros(2))
    for norm, expected in ((None, 5.0), (1.0, 1.0)):
        x.grad = torch.tensor([3.0, 4.0])
        clip([x], norm)
        assert float(x.grad.norm()) == pytest.approx(expected)
