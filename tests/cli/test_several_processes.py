"""Two processes on this machine (gloo): they train like one with the full batch, and fail together."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import forked
import m3g
from m3g.cli import main
from m3g.training.loop import fit
from m3g.training.loop.best import validation_score
from m3g.training.loop.checkpoint import read_checkpoint
from m3g.training.loop.logs import Table
from m3g.training.mismatch.entries import read_entries
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SMALL = ["--loop.evaluate_every", "0", "--loop.accelerator", "cpu", "--encoder_options.width", "32"]
SAME = ["--encoder_options.dropout", "0"]  # masks of dropout differ between processes


@pytest.fixture
def views(tmp_path, monkeypatch):
    """Write four small views of 160 objects and return the arguments that select them."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    objects = random.standard_normal((160, 6))
    for name in "abcd":
        np.save(f"{name}.npy", objects @ random.standard_normal((6, 8)) + 0.3 * random.standard_normal((160, 8)))
    return ["--views", *(f"{name}.npy" for name in "abcd")]


@pytest.fixture
def torchrun(tmp_path, tmp_path_factory):
    """Run the command in two processes of torchrun; return exit code and output."""

    def run(*words, folders=(tmp_path, tmp_path), **options):
        return forked.torchrun(words, folders, tmp_path_factory.mktemp("logs"), **options)

    return run


@pytest.fixture
def command(tmp_path, tmp_path_factory):
    """Run the command, which starts two processes; return exit code and output."""
    return lambda *words: forked.run([*words, "--loop.devices", "2"], tmp_path, tmp_path_factory.mktemp("logs"))


def losses(folder):
    return [row["loss"] for row in Table(folder / "metrics.csv").rows()]


@pytest.mark.slow
@pytest.mark.timeout(1500)  # processes that each load everything, on a machine that may be busy
def test_two_processes_train_like_one_with_the_full_batch(tmp_path, views, torchrun, command):
    common = ["train", *views, "--loop.epochs", "4", *SMALL, *SAME, "--loss_options.gather", "true"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    for start, out, chunks in ((torchrun, "two", ["--loop.chunk_size", "5"]), (command, "started", [])):
        code, output = start(*common, "--data_options.batch_size", "16", "--out", out, *chunks)
        assert code == 0, output
        assert "threads left" not in output
    assert len(losses(tmp_path / "one")) == 12
    for name in ("two", "started"):  # by torchrun, and by the command itself
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
        assert (tmp_path / name / "results.json").exists()


@pytest.mark.slow
def test_sharded_weights_train_like_whole_ones_also_after_a_kill(tmp_path, views, torchrun):
    """Fully sharded, with a teacher: killed, resumed and exported, it equals one process with the full batch."""
    common = ["train", *views, "--loop.epochs", "5", *SMALL, *SAME, "--loss_options.gather", "true"]
    common += ["--loop.checkpoint_every", "2", "--heads.hidden", "32", "--loop.patience", "0"]
    common += ["--teacher.enabled", "true", "--heads.predictor", "true", "--teacher.momentum", "0.5"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    sharded = ["--loop.strategy", "fsdp", "--out", "two", "--data_options.batch_size", "16", "--loop.chunk_size", "5"]
    code, output = torchrun(*common, *sharded, killed=(7, 0.005))
    assert code == -signal.SIGKILL, output
    assert not (tmp_path / "two" / "model.safetensors").exists()
    code, output = torchrun("train", "--resume", "two")
    assert code == 0, output
    assert "continuing after step" in output
    assert len(losses(tmp_path / "one")) == 15
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    whole, shares = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    for name, weight in whole.items():
        torch.testing.assert_close(shares[name], weight, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
def test_sharded_training_stops_early_and_keeps_the_best_network(tmp_path, views, torchrun):
    options = ["--loop.epochs", "40", "--loop.patience", "2", "--loop.checkpoint_every", "1", "--heads.hidden", "32"]
    options += ["--loss", "infonce-pwe", "--optim.learning_rate", "0.05", "--data_options.val", "0.3"]
    sharded = ["--loop.strategy", "fsdp", "--out", "run", "--data_options.batch_size", "16"]
    code, output = torchrun("train", *views, *SMALL, *options, *sharded)
    assert code == 0, output
    assert "training stopped early (--loop.patience 2)" in output
    run = Run(tmp_path / "run")
    state = read_checkpoint(run.checkpoint)
    kept = next(value for name, value in state["callbacks"].items() if "KeepBest" in name)
    assert kept["stopped"]
    assert state["epoch"] < 39
    found = validation_score(m3g.load(run.path, scaled=True), fit.build_data(Config.read(run.config)), None)
    assert found == pytest.approx(kept["best"], abs=1e-6)


@pytest.mark.slow
def test_a_sharded_vision_transformer_trains_like_a_whole_one(tmp_path, monkeypatch, torchrun):
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
    whole, shares = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    assert any("layer" in name for name in whole)
    for name, weight in whole.items():
        torch.testing.assert_close(shares[name], weight, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "nonsense"], "loss must be one of"),
        (["--loop.sync_batchnorm", "true"], "loop.sync_batchnorm must be false without GPUs"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("by", ["torchrun", "the command"])
def test_a_mistake_in_all_processes_is_reported_once(tmp_path, arguments, message, by, torchrun, command):
    code, output = (torchrun if by == "torchrun" else command)("train", *SMALL, *arguments)
    assert code == 2
    assert output.count("m3g: error:") == 1, output
    assert message in output
    assert list(tmp_path.iterdir()) == []
    if by == "the command":
        assert len(output.splitlines()) == 1, output


@pytest.mark.slow
def test_processes_that_the_command_starts_fail_in_one_line_while_they_train(tmp_path, command):
    for name, scale in (("a", 1), ("b", 1e30)):
        np.save(tmp_path / f"{name}.npy", scale * np.random.default_rng(0).standard_normal((60, 5)))
    options = ["--data_options.batch_size", "20", "--data_options.standardize", "false"]
    code, output = command("train", *SMALL, "--views", "a.npy", "b.npy", *options)
    assert code == 2
    assert "Traceback" not in output
    assert output.count("m3g: error:") == 1, output
    assert "training stopped at step 0" in output


def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    """Simulate a killed parent: another process is the parent now."""
    script = "import time; from m3g.cli.launch import end_with_parent; end_with_parent(); time.sleep(1000)"
    environment = {**ENVIRONMENT, "M3G_STARTED_BY": "0"}
    assert subprocess.run([sys.executable, "-c", script], env=environment, timeout=300).returncode == 2


@pytest.mark.parametrize("code", [0, 2])
def test_a_process_of_several_skips_the_shutdown_of_python(code):
    """Threads of the process group may abort it during shutdown; registered exit handlers still run after success."""
    script = (
        "import atexit, threading, time; from m3g.cli.launch import leave\n"
        "atexit.register(print, 'registered'); threading.Thread(target=time.sleep, args=[1000]).start()\n"
        f"leave({code})"
    )
    environment = {**ENVIRONMENT, "TORCHELASTIC_RUN_ID": "test"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, timeout=300, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (code, "registered\n" if code == 0 else "")


def test_the_installed_command_skips_it_too():
    entry = re.search(r'^m3g = "([\w.]+):(\w+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    module, function = entry.groups()
    script = (
        f"import sys, threading, time; from {module} import {function}; sys.argv = ['m3g', '--version']\n"
        f"threading.Thread(target=time.sleep, args=[1000]).start(); sys.exit({function}())"
    )
    environment = {**ENVIRONMENT, "TORCHELASTIC_RUN_ID": "test"}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("m3g ")


@pytest.mark.slow
@pytest.mark.parametrize(("when", "rank"), [("before", "1"), ("during", "1"), ("during", "0")])
def test_a_process_that_fails_alone_ends_all(tmp_path, rank, when, torchrun):
    """One process has other files: missing ones, or a view that is not finite when it is used."""
    rng = np.random.default_rng(0)
    for folder in ("0", "1"):
        (tmp_path / folder).mkdir()
        for name in ("a.npy", "b.npy"):
            np.save(tmp_path / folder / name, rng.standard_normal((60, 5)))
    if when == "before":
        (tmp_path / rank / "b.npy").unlink()
    else:
        huge = np.full((60, 5), 1e30, dtype=np.float32)
        np.save(tmp_path / rank / "b.npy", huge)
    arguments = ["--views", "a.npy", "b.npy", "--data_options.batch_size", "20", "--data_options.standardize", "false"]
    arguments += ["--encoder", "mlp"]  # a start at linear CCA would fail in another way on such numbers
    code, output = torchrun("train", *SMALL, *arguments, "--out", "run", folders=[tmp_path / "0", tmp_path / "1"])
    assert code == 2
    assert output.count("m3g: error:") == 1, output
    assert "threads left" not in output
    words = "b.npy" if when == "before" else "training stopped at step"
    assert words in output
    if when == "before":
        assert not (tmp_path / "0" / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_processes_exclude_the_same_entries_as_one(tmp_path, monkeypatch, torchrun):
    """Excluded entries depend on the row, and every process evaluates all rows, so they train like one process."""
    monkeypatch.chdir(tmp_path)
    common = ["train", "--loop.epochs", "6", *SMALL, *SAME, "--loss", "infonce-pwe", "--heads.hidden", "32"]
    common += ["--loss_options.gather", "true", "--data_options.views", "[fourier, zernike, karhunen]"]
    common += ["--data_options.swapped", "0.1", "--mismatch", "true", "--view_dropout", "0.2"]
    common += ["--data_options.val", "0.3", "--data_options.test", "0"]  # nothing is measured at the end
    common += ["--optim.learning_rate", "5e-3", "--optim.warmup_epochs", "1"]
    # The order of summation changes the rounding, which training amplifies: in float32 to 1e-2 after 42 steps.
    common += ["--loop.precision", "64-true"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "200"]) == 0
    code, output = torchrun(*common, "--out", "two", "--data_options.batch_size", "100")
    assert code == 0, output
    assert len(losses(tmp_path / "one")) == 42
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-9)
    one, two = ({(e.row, e.view): e.reliability for e in read_entries(tmp_path / name)} for name in ("one", "two"))
    assert two == pytest.approx(one, abs=1e-4)
    assert min(one.values()) < 0.1  # there is something to agree on
