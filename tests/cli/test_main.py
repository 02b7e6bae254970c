"""User errors: one line, exit code 2, no traceback, no partial files."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures import QUICK, error_of
from m3g.cli import main


def test_an_existing_run_folder_is_not_touched(data_folder, capsys):
    (data_folder / "run").mkdir()
    assert "does: choose another name" in error_of(["train", *QUICK, "--out", data_folder / "run"], capsys)
    assert list((data_folder / "run").iterdir()) == []


def test_resume_rejects_other_settings(data_folder, capsys):
    assert "combined with --out or settings other than" in error_of(
        ["train", "--resume", data_folder, "--loop.devices", "7"], capsys
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "the command must be one of train, "),
        (["evaluate"], "run"),
        (["evaluate", "missing"], "there is none at missing"),
        (["evaluate", "."], "no config.yaml"),
        (["embed", "missing", "--out", "a.npz"], "there is none at missing"),
        (["losses", "nonsense"], "must be one of"),
        (["data", "nonsense"], "must be one of"),
        (["bench", "nonsense"], "must be one of"),
        (["bench", "overhead", "--epsilon", "-1"], "--epsilon must be a positive finite number"),
        (["reproduce", "nonsense"], "must be one of"),
        (["push", "missing", "me/mine"], "there is none at missing"),
        (["evalute", "missing"], "got 'evalute': did you mean evaluate?"),
        (["evaluate", ".", "--few_shots", "true"], "got --few_shots: did you mean --few_shot?"),
    ],
)
def test_wrong_arguments_of_other_commands_are_reported_in_one_line(data_folder, capsys, arguments, message):
    assert message in error_of(arguments, capsys)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_damaged_image_is_reported_even_by_a_data_worker(tmp_path, monkeypatch, capsys, workers):
    monkeypatch.chdir(tmp_path)
    for kind in ("ape", "bee"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "images" / kind / f"{number}.png")
    (tmp_path / "images" / "ape" / "broken.png").write_text("not an image")
    options = {"root": "images", "size": 16, "batch_size": 9, "val": 0, "test": 0, "num_workers": workers}
    words = [word for name, value in options.items() for word in (f"--data_options.{name}", str(value))]
    line = error_of(["train", "--data", "images", *words, *QUICK], capsys)
    assert (
        line == "m3g: error: images must be readable except for at most 1 %, got 1 damaged of 9: images/ape/broken.png."
    )


def test_a_missing_run_is_reported_before_heavy_libraries_are_imported(tmp_path):
    command = [sys.executable, "-X", "importtime", "-m", "m3g", "evaluate", "missing"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 2
    loaded = {
        line.rpartition("|")[2].strip() for line in completed.stderr.splitlines() if line.startswith("import time:")
    }
    assert "m3g.cli.main" in loaded
    assert loaded.isdisjoint({"lightning", "transformers", "sklearn", "matplotlib", "pandas", "kornia"})


def test_a_warning_is_one_line_without_source_code(data_folder):
    command = [sys.executable, "-m", "m3g", "train", "--views", "a.npy", "b.npy", "--loss", "mcca", "--dry-run"]
    completed = subprocess.run(command, cwd=data_folder, capture_output=True, text=True)
    assert completed.returncode == 0
    (line,) = completed.stderr.splitlines()
    assert line.startswith("m3g: warning: mcca requires batches of at least twice as many points as dimensions")


def test_debug_shows_the_traceback(data_folder, capsys):
    assert main(["train", "--debug", "--loss", "nonsense"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("pretrained", ["true", "false"])
def test_a_pretrained_encoder_requires_the_hub(data_folder, capsys, no_hub, pretrained):
    options = ["--encoder_options.model", "nobody/nothing", "--encoder_options.pretrained", pretrained]
    line = error_of(["train", "--encoder", "transformers", *options], capsys)
    assert "check the name and that the hub is reachable" in line
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("config.yaml", "width: 8", "width: 9", "encoder_options.width was 8 and is 9"),
        ("config.yaml", "seed: 0", "seed: many", "config.yaml: seed must be a whole number, got 'many'"),
        ("config.yaml", "encoder: residual", "encoder: antigravity.Encoder", "pass trust=True"),
        ("config.yaml", "seed: 0", "seed: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_a_run_that_was_tampered_with_is_not_resumed(copy, capsys, file, old, new, message):
    content = (copy / file).read_text()
    assert old in content
    (copy / file).write_text(content.replace(old, new, 1))
    assert message in error_of(["train", "--resume", copy], capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"view_shapes": [', '"view_shapes": 3, "old": [', "damaged or of another kind"),
        ('"encoder": {', '"encoder": 4, "old": {', "damaged or of another kind"),
        ('"kind": "residual"', '"class_path": "antigravity.Encoder"', "pass trust=True"),
        ('"format"', "format", "damaged or of another kind"),
    ],
)
def test_a_model_that_was_tampered_with_is_not_read(copy, capsys, old, new, message):
    content = (copy / "model.json").read_text()
    assert old in content
    (copy / "model.json").write_text(content.replace(old, new, 1))
    for command in (["evaluate", copy], ["embed", copy, "--out", "emb.npz"]):
        assert message in error_of(command, capsys)


def test_resuming_a_finished_run_evaluates_it_again(copy, capsys):
    (copy / "results.json").unlink()
    weights = (copy / "model.safetensors").read_bytes()
    assert main(["train", "--resume", str(copy)]) == 0
    assert "continuing after step 2" in capsys.readouterr().out
    assert (copy / "results.json").exists()
    assert (copy / "model.safetensors").read_bytes() == weights


def test_a_pickle_in_a_checkpoint_is_not_executed(copy, capsys):
    trace = copy.parent / "trace"

    class Malicious:
        def __reduce__(self):
            return (open, (str(trace), "w"))

    torch.save({"m3g_checkpoint": 1, "state": Malicious()}, copy / "checkpoints" / "last.ckpt")
    message = error_of(["train", "--resume", copy], capsys)
    assert "damaged or was written by another program" in message
    assert "\x1b" not in message
    assert not trace.exists()


def test_a_run_is_not_resumed_on_other_rows(data_folder, capsys):
    views = [data_folder / "a.npy", data_folder / "b.npy"]
    options = ["--data_options.batch_size", "20", "--out", "run"]
    assert main(["train", *QUICK, "--views", *map(str, views), *options]) == 0
    capsys.readouterr()
    for view in views:
        np.save(view, np.load(view)[:-1])
    line = error_of(["train", "--resume", "run"], capsys)
    assert "data must have the 42 training rows with which the run started, got 41" in line
