"""Early stopping keeps the best network of the validation split, and a resumed run keeps the same."""

import re
import shutil

import numpy as np
import pytest
import torch

import m3g
from m3g.cli import main
from m3g.training.loop import checkpoint, fit
from m3g.training.loop.best import can_stop_early, too_few_rows, validation_ranks, validation_score
from m3g.training.loop.selection import MIN_ROWS, not_worse
from m3g.training.settings.config import Config
from training.loop.test_checkpoint import KeepAll


@pytest.fixture
def config(tmp_path):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(150, 4))
    for name, width in (("a", 40), ("b", 60)):
        np.save(tmp_path / f"{name}.npy", hidden @ rng.normal(size=(4, width)) + 2 * rng.normal(size=(150, width)))
    return Config.from_dict(
        {
            "data": "arrays",
            "data_options": {"paths": [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")], "val": 0.3, "test": 0.0},
            "encoder_options": {"width": 32},
            "heads": {"embedding_size": 8, "hidden": 16},
            "loss": "infonce-pwe",
            "optim": {"learning_rate": 0.05},
            "loop": {"epochs": 40, "patience": 3, "evaluate_every": 0, "checkpoint_every": 1, "accelerator": "cpu"},
        }
    )


def test_training_stops_and_the_best_network_is_kept(config, tmp_path, capsys):
    run = fit.train(config, tmp_path / "run")
    out = capsys.readouterr().out
    assert "the best on the validation split; training stopped early (--loop.patience 3)" in out
    state = checkpoint.read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert kept["stopped"]
    assert state["epoch"] < 39
    data = fit.build_data(config)
    net = m3g.load(run.path, scaled=True)
    score = validation_score(net, data, None)
    last = fit.train(_without_patience(config), tmp_path / "last")
    assert score > validation_score(m3g.load(last.path, scaled=True), data, None)
    assert "the best on the validation split" not in capsys.readouterr().out
    net.load_state_dict(kept["weights"], strict=False)
    assert validation_score(net, data, None) == pytest.approx(kept["best"], abs=1e-6)


def test_a_run_that_reaches_its_last_epoch_does_not_stop_early(config, tmp_path, capsys):
    settings = config.to_dict()
    changes = {"optim": {"learning_rate": 1e-9}, "loop": {**settings["loop"], "epochs": 3}}  # never improves
    fit.train(Config.from_dict({**settings, **changes}), tmp_path / "run")
    out = capsys.readouterr().out
    assert "epoch 3/3" in out
    assert "kept the initial network, the best on the validation split\n" in out


def test_the_result_is_the_average_closest_to_linear_cca_within_one_standard_error(config, tmp_path, capsys):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(150, 4))
    for path, width in zip(config.data_options["paths"], (40, 60)):
        np.save(path, np.sin(2 * hidden @ rng.normal(size=(4, width))) + 0.3 * rng.normal(size=(150, width)))
    config.optim.learning_rate = 0.003
    run = fit.train(config, tmp_path / "run")
    fraction = float(re.search(r"with those of linear CCA \((0\.\d) trained", capsys.readouterr().out).group(1))
    state = checkpoint.read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    data, net = fit.build_data(config), m3g.load(run.path, scaled=True)

    def ranks(fraction):
        average = {name: torch.lerp(part, kept["weights"][name], fraction) for name, part in kept["start"].items()}
        net.load_state_dict(average, strict=False)
        return validation_ranks(net, data)

    contributions = validation_ranks(net, data)
    assert float(contributions.sum()) == pytest.approx(validation_score(net, data, None))
    torch.testing.assert_close(contributions, ranks(fraction))
    assert not_worse(contributions, ranks(1.0))
    assert fraction == 0.1 or not not_worse(ranks(fraction - 0.1), ranks(1.0))


def test_weights_are_not_averaged_with_a_random_initial_network(config, tmp_path, capsys):
    config.encoder, config.loop.epochs = "mlp", 3
    run = fit.train(config, tmp_path / "run")
    state = checkpoint.read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert kept["start"] == {}
    assert "averaged its weights" not in capsys.readouterr().out


def _without_patience(config):
    return Config.from_dict({**config.to_dict(), "loop": {**config.to_dict()["loop"], "patience": 0}})


@pytest.mark.slow
def test_a_resumed_run_stops_at_the_same_epoch_with_the_same_network(config, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SaveCheckpoints", KeepAll)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    uninterrupted = fit.train(config, tmp_path / "whole")
    kept = sorted(uninterrupted.checkpoints.glob("*.kept"), key=lambda path: int(path.stem))
    for number in (0, 1, len(kept) // 2, len(kept) - 1):
        again = tmp_path / f"again-{number}"
        shutil.copytree(uninterrupted.path, again, ignore=shutil.ignore_patterns("*.kept", "model.*"))
        shutil.copy(kept[number], again / "checkpoints" / "last.ckpt")
        assert fit.train(config, again, resume=True).weights.read_bytes() == uninterrupted.weights.read_bytes()
        steps = [
            checkpoint.read_checkpoint(run / "checkpoints" / "last.ckpt")["global_step"]
            for run in (again, uninterrupted.path)
        ]
        assert steps[0] == steps[1]
    torch.set_num_threads(threads)


def test_too_few_validation_rows_disable_early_stopping(config, tmp_path, capsys):
    data = fit.build_data(config)
    assert can_stop_early(data)
    assert too_few_rows(config.loop, data) == ""
    config.data_options["val"], config.loop.epochs = 0.05, 1
    data = fit.build_data(config)
    assert not can_stop_early(data)
    line = "no early stopping, because there are 8 validation rows and at least 10 are required: the last network is"
    fit.train(config, tmp_path / "run", data=data)
    assert line in capsys.readouterr().out
    config.loop.patience = 0  # requested
    assert too_few_rows(config.loop, data) == ""


def test_augmented_images_in_memory_have_no_early_stopping(tmp_path):
    """Their views are identical in evaluation, so every network would have the maximum score."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "images.npz", images=rng.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8))
    config = Config(data="image-arrays", data_options={"path": str(tmp_path / "images.npz"), "val": 0.3})
    data = fit.build_data(config)
    assert data.num_rows("val") >= MIN_ROWS
    assert not can_stop_early(data)
    assert too_few_rows(config.loop, data) == ""
    config.mismatch = True
    with pytest.raises(ValueError, match="mismatch must be false for ImageArrays"):
        fit.build_module(config, data)


@pytest.mark.slow
def test_a_finished_run_is_extended_and_can_be_resumed_again(config, tmp_path, capsys):
    config.loop.epochs, config.loop.patience = 2, 30
    run = fit.train(config, tmp_path / "run")
    assert main(["train", "--resume", str(run.path), "--loop.epochs", "5"]) == 0
    out = capsys.readouterr().out
    assert "extended from 2 to 5 epochs: the learning rate continues on the schedule of 5 epochs" in out
    assert "epoch 5/5" in out
    weights = run.weights.read_bytes()
    assert main(["train", "--resume", str(run.path)]) == 0  # the run now has these settings and is finished
    assert run.weights.read_bytes() == weights
    complete = "the run was already complete and was not trained further; a larger --loop.epochs extends it"
    assert complete in capsys.readouterr().out
    assert complete not in out
    assert main(["train", "--resume", str(run.path), "--loop.epochs", "3"]) == 2
    assert "loop.epochs must be at least the 5 epochs of the run, got 3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_stopped_early_continues_when_extended(config, tmp_path):
    run = fit.train(config, tmp_path / "run")
    stopped = checkpoint.read_checkpoint(run.checkpoint)["global_step"]
    assert main(["train", "--resume", str(run.path), "--loop.epochs", "60"]) == 0
    assert checkpoint.read_checkpoint(run.checkpoint)["global_step"] > stopped
