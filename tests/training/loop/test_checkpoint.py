"""An interrupted and resumed run ends with the weights of an uninterrupted one."""

import shutil
import signal

import pytest
import torch
import yaml

import forked
from m3g.cli import main
from m3g.training.loop import checkpoint, fit
from m3g.training.loop.logs import Table
from m3g.training.mismatch.entries import read_entries
from m3g.training.settings.config import Config


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """The order of summation depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(**changes):
    content = {
        # without test rows: only weights are compared, and evaluation takes longer than training
        "data_options": {"batch_size": 200, "views": ["fourier", "zernike", "morphology"], "val": 0.3, "test": 0.0},
        "encoder_options": {"width": 16, "dropout": 0.2},
        "heads": {"embedding_size": 8, "hidden": 16, "predictor": True},
        "teacher": {"enabled": True},
        "loss": "infonce-pwe",
        "loop": {"epochs": 2, "evaluate_every": 0, "checkpoint_every": 1, "accelerator": "cpu"},
        "optim": {"end_weight_decay": 0.4},
    }
    for name, value in changes.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    return Config.from_dict(content)


class KeepAll(checkpoint.SaveCheckpoints):
    """Also store a copy of every checkpoint, because the run may be killed after any of them."""

    def _save(self, trainer, pl_module):
        super()._save(trainer, pl_module)
        number = len(list(self.path.parent.glob("*.kept")))
        shutil.copy(self.path, self.path.with_name(f"{number}.kept"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"loop": {"accumulate": 2}},
        {"teacher": {"student_views": 2}},
        {"data_options": {"num_workers": 1}},
        {"data_options": {"swapped": 0.2}, "mismatch": True, "view_dropout": 0.2},
    ],
    ids=["leave-one-out", "accumulate", "split", "workers", "mismatch"],
)
@pytest.mark.slow
def test_resuming_from_any_checkpoint_gives_the_same_weights(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(checkpoint, "SaveCheckpoints", KeepAll)
    config = small(**changes)
    whole = fit.train(config, tmp_path / "whole")
    weights, rows = whole.weights.read_bytes(), Table(whole.path / "metrics.csv").rows()
    kept = sorted(whole.checkpoints.glob("*.kept"), key=lambda path: int(path.stem))
    steps = [checkpoint.read_checkpoint(path)["global_step"] for path in kept]
    assert steps == list(range(len(rows) + 1))
    for number in (0, len(kept) // 2, len(kept) - 1) if len(kept) > 8 else range(len(kept)):
        again = tmp_path / f"again-{number}"
        shutil.copytree(whole.path, again, ignore=shutil.ignore_patterns("*.kept", "model.*"))
        shutil.copy(kept[number], again / "checkpoints" / "last.ckpt")
        resumed = fit.train(config, again, resume=True)
        assert resumed.weights.read_bytes() == weights, f"resumed at step {steps[number]}"
        assert Table(again / "metrics.csv").rows() == rows
        if config.mismatch:
            assert resumed.mismatch.read_bytes() == whole.mismatch.read_bytes()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run of six epochs, in a folder with its settings."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    config = small(loop={"epochs": 6, "checkpoint_every": 3})
    (folder / "settings.yaml").write_text(config.to_yaml())
    return fit.train(config, folder / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(("row", "seconds"), [(1, 0.0), (20, 0.003), (30, 0.009)])
def test_a_killed_run_is_resumed_by_the_command(tmp_path, uninterrupted, row, seconds):
    whole, killed = uninterrupted, tmp_path / "killed"
    settings = whole.path.parent / "settings.yaml"
    command = ["train", "--config", settings, "--out", killed]
    code, output = forked.run(command, tmp_path, tmp_path, killed=(row, seconds))
    assert code == -signal.SIGKILL, output
    assert not (killed / "model.safetensors").exists()
    step = checkpoint.read_checkpoint(killed / "checkpoints" / "last.ckpt")["global_step"]
    assert step >= row - 3
    assert main(["train", "--resume", str(killed)]) == 0
    assert (killed / "model.safetensors").read_bytes() == whole.weights.read_bytes(), f"killed near step {row}"
    assert (killed / "metrics.csv").read_bytes() == (whole.path / "metrics.csv").read_bytes()


@pytest.mark.slow
def test_a_killed_run_with_mismatched_entries_is_resumed(tmp_path):
    """The checkpoint contains the state of the mismatch detection: equal weights, and an equal list of entries."""
    config = small(
        data_options={"batch_size": 100, "views": ["fourier", "karhunen", "pixels"], "swapped": 0.1},
        teacher={"enabled": False},
        encoder_options={"width": 32, "dropout": 0.1},
        heads={"embedding_size": 32, "hidden": 32, "predictor": False},
        optim={"learning_rate": 5e-3},
        mismatch=True,
        loop={"epochs": 6, "checkpoint_every": 5},
    )
    whole = fit.train(config, tmp_path / "whole")
    assert sum(entry.log_odds < 0 for entry in read_entries(whole.path)) > 20
    settings = tmp_path / "settings.yaml"
    settings.write_text(config.to_yaml())
    killed = tmp_path / "killed"
    command = ["train", "--config", settings, "--out", killed]
    code, output = forked.run(command, tmp_path, tmp_path, killed=(61, 0.005))
    assert code == -signal.SIGKILL, output
    assert main(["train", "--resume", str(killed)]) == 0
    assert (killed / "model.safetensors").read_bytes() == whole.weights.read_bytes()
    assert (killed / "mismatch.csv").read_bytes() == whole.mismatch.read_bytes()


def test_a_damaged_checkpoint_is_an_error_and_changes_nothing(tmp_path):
    run = fit.train(small(loop={"epochs": 1}), tmp_path / "run")
    run.weights.unlink()
    run.checkpoint.write_bytes(run.checkpoint.read_bytes()[:-100])
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="damaged"):
        fit.train(small(loop={"epochs": 1}), run.path, resume=True)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_settings_that_an_older_checkpoint_lacks_have_their_defaults():
    stored = small().to_dict()
    del stored["loop"]["patience"], stored["mismatch"]
    content = {checkpoint.CONFIG: yaml.safe_dump(stored)}
    checkpoint.check_settings(content, small(), "last.ckpt")
    with pytest.raises(ValueError, match=r"loop.clip was .* and is 2.0"):
        checkpoint.check_settings(content, small(loop={"clip": 2.0}), "last.ckpt")
