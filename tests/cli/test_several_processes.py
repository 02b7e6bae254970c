"""Two processes on this machine (gloo): they train like one with the full batch, and fail together."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

import m3g
from m3g.training.logs import Table

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TWO = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
SMALL = ["--loop.evaluate_every", "0", "--loop.accelerator", "cpu", "--encoder_options.width", "32"]


def start(command, folder, **options):
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=ENVIRONMENT, text=True, start_new_session=True, **options
    )


def run(command, folder):
    """Exit code and what was said, within two minutes."""
    process = start(command, folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output


def losses(folder):
    return [row["loss"] for row in Table(folder / "metrics.csv").rows()]


@pytest.mark.slow
def test_two_processes_train_like_one_with_the_full_batch(tmp_path):
    common = ["-m", "m3g", "train", "--loop.max_steps", "20", *SMALL, "--loss_options.gather", "true"]
    common += ["--data_options.views", "[fourier, zernike, morphology, karhunen, profile]"]
    for command in (
        [*common, "--out", "one", "--data_options.batch_size", "64"],
        [*TWO, "29517", *common, "--out", "two", "--data_options.batch_size", "32"],
        [*common, "--out", "started", "--data_options.batch_size", "32", "--loop.devices", "2"],
    ):
        code, output = run(command, tmp_path)
        assert code == 0, output
    assert len(losses(tmp_path / "one")) == 20
    for name in ("two", "started"):  # by torchrun, and by the command itself
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
        assert (tmp_path / name / "results.json").exists()


@pytest.mark.slow
def test_sharded_weights_train_like_whole_ones_also_after_a_kill(tmp_path):
    """Fully sharded, with a teacher: killed, resumed and exported, it equals one process with the full batch."""
    common = ["-m", "m3g", "train", "--loop.epochs", "1", *SMALL, "--loss_options.gather", "true"]
    common += ["--data_options.views", "[fourier, zernike, morphology]", "--loop.checkpoint_every", "2"]
    common += ["--teacher.enabled", "true", "--heads.predictor", "true", "--teacher.momentum", "0.5"]
    common += ["--heads.hidden", "32"]
    code, output = run([*common, "--out", "one", "--data_options.batch_size", "64"], tmp_path)
    assert code == 0, output
    sharded = ["--loop.strategy", "fsdp", "--out", "two", "--data_options.batch_size", "32"]
    process = start([*TWO, "29519", *common, *sharded], tmp_path, stdout=subprocess.DEVNULL)
    while len(losses(tmp_path / "two")) < 7:
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "two" / "model.safetensors").exists()
    code, output = run([*TWO, "29521", "-m", "m3g", "train", "--resume", "two"], tmp_path)
    assert code == 0, output
    assert "continuing after step" in output
    assert len(losses(tmp_path / "one")) == 21
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    whole, shares = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    for name, weight in whole.items():
        torch.testing.assert_close(shares[name], weight, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "nonsense"], "m3g: error: loss takes one of"),
        (["--loop.sync_batchnorm", "true"], "loop.sync_batchnorm takes GPUs"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_in_all_processes_is_told_once(tmp_path, arguments, message):
    code, output = run([*TWO, "29523", "-m", "m3g", "train", *SMALL, *arguments], tmp_path)
    assert code != 0
    assert output.count("m3g: error:") == 1, output
    assert message in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("when", "rank"), [("before", "1"), ("during", "1"), ("during", "0")])
def test_a_process_that_fails_alone_ends_all(tmp_path, rank, when):
    """One process finds other files than the other: absent ones, or a view that is not finite once it is used."""
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
    script = tmp_path / "in_own_folder.py"
    script.write_text(
        "import os, sys; os.chdir(os.environ['RANK']); from m3g.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["--views", "a.npy", "b.npy", "--data_options.batch_size", "20", "--data_options.standardize", "false"]
    began = time.monotonic()
    code, output = run([*TWO, "29525", str(script), "train", *SMALL, *arguments, "--out", "run"], tmp_path)
    assert code != 0
    assert time.monotonic() - began < 60
    assert output.count("m3g: error:") == 1, output
    words = "b.npy" if when == "before" else "training stopped at step"
    assert words in output
