"""Runs that end before their first checkpoint."""

from fixtures import QUICK
from m3g.cli import main
from m3g.training.loop import checkpoint
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
