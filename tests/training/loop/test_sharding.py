"""Training with sharded weights equals training in one process."""

import signal

import numpy as np
import pytest
import torch

import m3g
from forked import SAME, SMALL, losses
from m3g.cli import main
from m3g.training.loop import fit
from m3g.training.loop.best import validation_score
from m3g.training.loop.checkpoint import read_checkpoint
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config


@pytest.mark.slow
def test_sharded_training_equals_that_of_one_process_also_after_a_kill(tmp_path, four_views, torchrun):
    """Fully sharded, with a teacher: killed, resumed and exported, it equals one process with the full batch."""
    common = ["train", *four_views, "--loop.epochs", "3", *SMALL, *SAME, "--loss_options.gather", "true"]
    common += ["--loop.checkpoint_every", "2", "--heads.hidden", "32", "--loop.patience", "0"]
    common += ["--teacher.enabled", "true", "--heads.predictor", "true", "--teacher.momentum", "0.5"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    sharded = ["--loop.strategy", "fsdp", "--out", "two", "--data_options.batch_size", "16", "--loop.chunk_size", "5"]
    code, output = torchrun(*common, *sharded, killed=(5, 0.005))
    assert code == -signal.SIGKILL, output
    assert not (tmp_path / "two" / "model.safetensors").exists()
    code, output = torchrun("train", "--resume", "two")
    assert code == 0, output
    assert "continuing after step" in output
    assert len(losses(tmp_path / "one")) == 9
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    expected, sharded_weights = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    for name, weight in expected.items():
        torch.testing.assert_close(sharded_weights[name], weight, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_sharded_training_stops_early_and_keeps_the_best_network(tmp_path, four_views, torchrun):
    options = ["--loop.epochs", "40", "--loop.patience", "2", "--loop.checkpoint_every", "1", "--heads.hidden", "32"]
    options += ["--loss", "infonce-pwe", "--optim.learning_rate", "0.05", "--data_options.val", "0.3"]
    sharded = ["--loop.strategy", "fsdp", "--out", "run", "--data_options.batch_size", "16"]
    code, output = torchrun("train", *four_views, *SMALL, *options, *sharded)
    assert code == 0, output
    assert "training stopped early (--loop.patience 2)" in output
    run = Run(tmp_path / "run")
    state = read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert kept["stopped"]
    assert state["epoch"] < 39
    score = validation_score(m3g.load(run.path, scaled=True), fit.build_data(Config.read(run.config)), None)
    assert score == pytest.approx(kept["best"], abs=1e-6)


@pytest.mark.slow
def test_sharded_training_from_linear_cca_keeps_the_best_network(tmp_path, four_views, torchrun):
    """Whole weights cannot be loaded into a sharded network, so they are not averaged with linear CCA."""
    options = ["--loop.epochs", "3", "--loop.checkpoint_every", "1", "--data_options.val", "0.3"]
    sharded = ["--loop.strategy", "fsdp", "--out", "run", "--data_options.batch_size", "16"]
    code, output = torchrun("train", *four_views, *options, *sharded)
    assert code == 0, output
    assert "linear CCA" in output
    state = read_checkpoint(Run(tmp_path / "run").checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert not kept["start"]
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_sharded_training_of_a_vision_transformer_equals_that_of_one_process(tmp_path, monkeypatch, torchrun):
    """`fully_shard` layer by layer, whole batches: losses and exported weights are those of one process."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    pictures = random.standard_normal((48, 1, 8, 8)).astype(np.float32)
    for name in "ab":
        np.save(f"{name}.npy", pictures + 0.3 * random.standard_normal(pictures.shape).astype(np.float32))
    common = ["train", "--views", "a.npy", "b.npy", "--loop.epochs", "3", *SMALL[:4], "--loss_options.gather", "true"]
    common += ["--encoder", "vit", "--encoder_options.width", "12", "--encoder_options.depth", "2"]
    common += ["--encoder_options.patch", "4", "--heads.hidden", "16", "--data_options.test", "0"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "16"]) == 0
    sharded = ["--loop.strategy", "fsdp", "--out", "two", "--data_options.batch_size", "8"]
    code, output = torchrun(*common, *sharded)
    assert code == 0, output
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    expected, sharded_weights = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    assert any("layer" in name for name in expected)
    for name, weight in expected.items():
        torch.testing.assert_close(sharded_weights[name], weight, atol=1e-3, rtol=1e-3)
