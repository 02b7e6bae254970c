"""The fast loop takes the same steps as `m3g train` and continues after a kill."""

import pytest
import torch

import m3g
from m3g.experiments.runner import quick
from m3g.training import MultiViewModule, load, train
from m3g.training.settings.config import Config


def config(**loop):
    made = Config(
        data_options={"batch_size": 16, "views": ["fourier", "zernike", "pixels"]}, encoder_options={"width": 16}
    )
    made.heads.hidden = 32
    made.heads.predictor = made.teacher.enabled = True
    made.loop.evaluate_every, made.loop.patience, made.loop.accelerator = 0, 0, "cpu"  # compares the last weights
    made.loop.max_steps = 6
    return made


def weights(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def test_same_steps_as_the_trainer(tmp_path):
    module, _ = quick.fit_quickly(config(), tmp_path)
    train(config(), tmp_path / "run")
    torch.testing.assert_close(weights(module.net), weights(load(tmp_path / "run")), rtol=0, atol=0)


def test_same_optimiser_as_the_trainer_with_a_reference_batch(tmp_path):
    """The scaling rule changes the betas, which are fixed when the optimiser is built."""
    scaled = config()
    scaled.optim.reference_batch = 64
    module, _ = quick.fit_quickly(scaled, tmp_path)
    train(scaled, tmp_path / "run")
    torch.testing.assert_close(weights(module.net), weights(load(tmp_path / "run")), rtol=0, atol=0)


@pytest.mark.parametrize("stop", [1, 4])
def test_a_killed_run_continues_from_its_checkpoint(tmp_path, monkeypatch, stop):
    whole, _ = quick.fit_quickly(config(), tmp_path / "whole")
    monkeypatch.setattr(quick, "SAVE_AFTER", -1.0)
    compare, made = MultiViewModule.training_step, []

    def dies(module, batch, step):
        if len(made) == stop:
            raise KeyboardInterrupt
        made.append(step)
        return compare(module, batch, step)

    monkeypatch.setattr(MultiViewModule, "training_step", dies)
    with pytest.raises(KeyboardInterrupt):
        quick.fit_quickly(config(), tmp_path / "killed")
    monkeypatch.setattr(MultiViewModule, "training_step", lambda *args: made.append(args[2]) or compare(*args))
    resumed, _ = quick.fit_quickly(config(), tmp_path / "killed")
    assert made == list(range(6))
    torch.testing.assert_close(weights(whole.net), weights(resumed.net), rtol=0, atol=0)


def test_training_follows_the_epsilon_schedule(tmp_path, monkeypatch):
    seen = []
    compute = m3g.M3GLoss.compute
    monkeypatch.setattr(
        m3g.M3GLoss, "compute", lambda loss, *inputs: seen.append(loss.epsilon) or compute(loss, *inputs)
    )
    moving = config()
    moving.loss, moving.loss_options = "m3g", {"epsilon": 0.02, "final_epsilon": 0.2}
    quick.fit_quickly(moving, tmp_path)
    assert [seen[0], seen[-1]] == pytest.approx([0.02, 0.2])
    assert sorted(seen) == seen
