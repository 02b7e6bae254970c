"""The fast loop takes the same steps as `m3g train` and continues after a kill."""

import pytest
import torch

import m3g
from m3g.experiments.runner import quick
from m3g.training import MultiViewModule, load, train
from m3g.training.settings.config import Config


def config(**loop):
    settings = Config(
        data_options={"batch_size": 16, "views": ["fourier", "zernike", "pixels"]}, encoder_options={"width": 16}
    )
    settings.heads.hidden = 32
    settings.heads.predictor = settings.teacher.enabled = True
    settings.loop.evaluate_every = settings.loop.patience = 0  # the weights of the last step are kept
    settings.loop.accelerator, settings.loop.max_steps = "cpu", 6
    return settings


def weights(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def test_the_weights_equal_those_of_the_trainer(tmp_path):
    module, _ = quick.fit_quickly(config(), tmp_path)
    train(config(), tmp_path / "run")
    torch.testing.assert_close(weights(module.net), weights(load(tmp_path / "run")), rtol=0, atol=0)


def test_the_weights_with_a_reference_batch_equal_those_of_the_trainer(tmp_path):
    """The scaling rule changes the betas, which are fixed when the optimiser is built."""
    scaled = config()
    scaled.optim.reference_batch = 64
    module, _ = quick.fit_quickly(scaled, tmp_path)
    train(scaled, tmp_path / "run")
    torch.testing.assert_close(weights(module.net), weights(load(tmp_path / "run")), rtol=0, atol=0)


@pytest.mark.parametrize("stop", [1, 4])
def test_a_killed_run_continues_from_its_checkpoint(tmp_path, monkeypatch, stop):
    uninterrupted, _ = quick.fit_quickly(config(), tmp_path / "whole")
    monkeypatch.setattr(quick, "SAVE_AFTER", -1.0)
    training_step, steps = MultiViewModule.training_step, []

    def interrupted_step(module, batch, step):
        if len(steps) == stop:
            raise KeyboardInterrupt
        steps.append(step)
        return training_step(module, batch, step)

    monkeypatch.setattr(MultiViewModule, "training_step", interrupted_step)
    with pytest.raises(KeyboardInterrupt):
        quick.fit_quickly(config(), tmp_path / "killed")
    monkeypatch.setattr(MultiViewModule, "training_step", lambda *args: steps.append(args[2]) or training_step(*args))
    resumed, _ = quick.fit_quickly(config(), tmp_path / "killed")
    assert steps == list(range(6))
    torch.testing.assert_close(weights(uninterrupted.net), weights(resumed.net), rtol=0, atol=0)


def test_training_follows_the_epsilon_schedule(tmp_path, monkeypatch):
    epsilons = []
    compute = m3g.M3GLoss.compute
    monkeypatch.setattr(
        m3g.M3GLoss, "compute", lambda loss, *inputs: epsilons.append(loss.epsilon) or compute(loss, *inputs)
    )
    scheduled = config()
    scheduled.loss, scheduled.loss_options = "m3g", {"epsilon": 0.02, "final_epsilon": 0.2}
    quick.fit_quickly(scheduled, tmp_path)
    assert [epsilons[0], epsilons[-1]] == pytest.approx([0.02, 0.2])
    assert sorted(epsilons) == epsilons
