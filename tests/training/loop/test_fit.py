"""Runs that end before their first checkpoint, and the first lines of the log."""

import numpy as np
import pytest

from fixtures import QUICK
from m3g.cli import main
from m3g.training.loop import checkpoint
from m3g.training.loop.fit import train
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config


def interrupted(*args):
    raise KeyboardInterrupt


def test_ctrl_c_before_the_first_checkpoint_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoint.SaveCheckpoints, "_save", interrupted)
    assert main(["train", *QUICK, "--out", "deep/run"]) == 130
    assert capsys.readouterr().err.strip() == "m3g: error: interrupted; nothing was saved"
    assert list(tmp_path.iterdir()) == []


def test_a_run_killed_before_its_first_checkpoint_starts_again(copy, finished):
    config = Config.read(copy / "config.yaml")
    killed = Run("killed")
    killed.create(config)
    killed.release()
    assert main(["train", "--resume", "killed"]) == 0
    assert killed.weights.read_bytes() == (copy / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("num_missing", "options", "line"),
    [
        (0, [], None),
        (
            6,
            [],
            "6 % of the training entries are missing: the normalised mean of the row's present views replaces them",
        ),
        (
            40,
            [],
            "40 % of the training entries are missing: the normalised mean of the row's present views replaces them; "
            "--loss m3g-pairs omits them and often has a higher R@1",
        ),
        (
            40,
            ["--loss_options.cost", "product"],
            "40 % of the training entries are missing: the normalised mean of the row's present views replaces them",
        ),
        (40, ["--loss", "m3g-pairs"], "40 % of the training entries are missing: the loss omits them"),
    ],
)
def test_the_log_reports_missing_entries(tmp_path, monkeypatch, capsys, num_missing, options, line):
    monkeypatch.chdir(tmp_path)
    for l, view in enumerate(np.random.default_rng(0).normal(size=(3, 100, 4))):
        view[np.arange(33 * l, 33 * l + num_missing) % 100] = np.nan
        np.save(f"{l}.npy", view)
    files = ["--views", "0.npy", "1.npy", "2.npy", "--data_options.val", "0", "--data_options.test", "0"]
    assert main(["train", *files, *QUICK, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [text for text in lines if "entries are missing" in text] == [line] * (line is not None)


def test_several_devices_without_torchrun_are_rejected_in_python(tmp_path):
    config = Config.from_dict({"loop": {"devices": 2}})
    with pytest.raises(ValueError, match=r"loop\.devices must be 1 in Python without torchrun, got 2"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
