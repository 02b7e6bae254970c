"""Two processes on this machine (gloo): they train like one with the full batch, and fail together."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import m3g
from m3g.cli import main
from m3g.training.entries import read_entries
from m3g.training.logs import Table
from training import killed_run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SMALL = ["--loop.evaluate_every", "0", "--loop.accelerator", "cpu", "--encoder_options.width", "32"]


@pytest.fixture
def views(tmp_path, monkeypatch):
    """The words that name four small views of 160 objects, in the working directory."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    objects = random.standard_normal((160, 6))
    for name in "abcd":
        np.save(f"{name}.npy", objects @ random.standard_normal((6, 8)) + 0.3 * random.standard_normal((160, 8)))
    return ["--views", *(f"{name}.npy" for name in "abcd")]


def run(command, folder):
    """Exit code and what was said; it must end, though processes that wait for each other would do so for hours."""
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=450)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, output


def losses(folder):
    return [row["loss"] for row in Table(folder / "metrics.csv").rows()]


@pytest.mark.slow
@pytest.mark.timeout(1500)  # processes that each load everything, on a machine that may be busy
def test_two_processes_train_like_one_with_the_full_batch(tmp_path, views):
    common = ["train", *views, "--loop.epochs", "4", *SMALL, "--loss_options.gather", "true"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    half = ["-m", "m3g", *common, "--data_options.batch_size", "16"]
    for command in ([*TWO, *half, "--out", "two"], [*half, "--out", "started", "--loop.devices", "2"]):
        code, output = run(command, tmp_path)
        assert code == 0, output
    assert len(losses(tmp_path / "one")) == 12
    for name in ("two", "started"):  # by torchrun, and by the command itself
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
        assert (tmp_path / name / "results.json").exists()


@pytest.mark.slow
def test_sharded_weights_train_like_whole_ones_also_after_a_kill(tmp_path, views):
    """Fully sharded, with a teacher: killed, resumed and exported, it equals one process with the full batch."""
    common = ["train", *views, "--loop.epochs", "5", *SMALL, "--loss_options.gather", "true"]
    common += ["--loop.checkpoint_every", "2", "--heads.hidden", "32"]
    common += ["--teacher.enabled", "true", "--heads.predictor", "true", "--teacher.momentum", "0.5"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "32"]) == 0
    sharded = ["--loop.strategy", "fsdp", "--out", "two", "--data_options.batch_size", "16"]
    code, output = run([*TWO, killed_run.__file__, "7", "0.005", *common, *sharded], tmp_path)
    assert code != 0
    assert "SIGKILL" in output, output
    assert not (tmp_path / "two" / "model.safetensors").exists()
    code, output = run([*TWO, "-m", "m3g", "train", "--resume", "two"], tmp_path)
    assert code == 0, output
    assert "continuing after step" in output
    assert len(losses(tmp_path / "one")) == 15
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-4)
    whole, shares = (m3g.load(tmp_path / name).state_dict() for name in ("one", "two"))
    for name, weight in whole.items():
        torch.testing.assert_close(shares[name], weight, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "nonsense"], "loss must be one of"),
        (["--loop.sync_batchnorm", "true"], "loop.sync_batchnorm must be left out without GPUs"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
@pytest.mark.parametrize("by", ["torchrun", "the command"])
def test_a_mistake_in_all_processes_is_told_once(tmp_path, arguments, message, by):
    train = ["-m", "m3g", "train", *SMALL, *arguments]
    code, output = run([*TWO, *train] if by == "torchrun" else [*train, "--loop.devices", "2"], tmp_path)
    assert code != 0
    assert output.count("m3g: error:") == 1, output
    assert message in output
    assert list(tmp_path.iterdir()) == []
    if by == "the command":
        assert code == 2
        assert len(output.splitlines()) == 1, output


@pytest.mark.slow
def test_processes_that_the_command_starts_fail_in_one_line_while_they_train(tmp_path):
    for name, scale in (("a", 1), ("b", 1e30)):
        np.save(tmp_path / f"{name}.npy", scale * np.random.default_rng(0).standard_normal((60, 5)))
    options = ["--data_options.batch_size", "20", "--data_options.standardize", "false", "--loop.devices", "2"]
    code, output = run(["-m", "m3g", "train", *SMALL, "--views", "a.npy", "b.npy", *options], tmp_path)
    assert code == 2
    assert "Traceback" not in output
    assert output.count("m3g: error:") == 1, output
    assert "training stopped at step 0" in output


def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    """As if that one had been killed: it is not the parent any more."""
    script = "import time; from m3g.cli.launch import end_with_parent; end_with_parent(); time.sleep(1000)"
    environment = {**ENVIRONMENT, "M3G_STARTED_BY": "0"}
    assert subprocess.run([sys.executable, "-c", script], env=environment, timeout=300).returncode == 2


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
    code, output = run([*TWO, str(script), "train", *SMALL, *arguments, "--out", "run"], tmp_path)
    assert code != 0
    assert output.count("m3g: error:") == 1, output
    words = "b.npy" if when == "before" else "training stopped at step"
    assert words in output
    if when == "before":
        assert not (tmp_path / "0" / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_processes_judge_and_drop_entries_like_one(tmp_path, monkeypatch):
    """Which entries go missing depends on the row, and all processes judge the rows of all: so they train as one."""
    monkeypatch.chdir(tmp_path)
    common = ["train", "--loop.epochs", "6", *SMALL, "--loss", "infonce-pwe", "--heads.hidden", "32"]
    common += ["--loss_options.gather", "true", "--data_options.views", "[fourier, zernike, karhunen]"]
    common += ["--data_options.swapped", "0.1", "--mismatch", "true", "--view_dropout", "0.2"]
    common += ["--data_options.val", "0.3", "--data_options.test", "0"]  # nothing is measured at the end
    common += ["--optim.learning_rate", "5e-3", "--optim.warmup_epochs", "1"]
    assert main([*common, "--out", "one", "--data_options.batch_size", "200"]) == 0
    two = ["-m", "m3g", *common, "--out", "two", "--data_options.batch_size", "100", "--loop.devices", "2"]
    code, output = run(two, tmp_path)
    assert code == 0, output
    assert len(losses(tmp_path / "one")) == 42
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-2)
    one, two = ({(e.row, e.view): e.reliability for e in read_entries(tmp_path / name)} for name in ("one", "two"))
    assert two == pytest.approx(one, abs=0.1)
    assert min(one.values()) < 0.1  # there is something to agree on
