"""What a user may get wrong: one line, exit code 2, no traceback, nothing half-written."""

import re

import numpy as np
import pytest
import torch

from m3g.cli import main

QUICK = ["--loop.epochs", "1", "--encoder_options.width", "8", "--heads.hidden", "8", "--loop.evaluate_every", "0"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory with two good files and several bad ones in a folder beside it."""
    files = tmp_path / "files"
    files.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(files / f"{name}.npy", rng.standard_normal((60, 5)))
    np.save(files / "short.npy", rng.standard_normal((40, 5)))
    np.save(files / "labels.npy", np.arange(30))
    hollow = rng.standard_normal((60, 5))
    hollow[:, 2] = np.nan
    np.save(files / "hollow.npy", hollow)
    np.save(files / "pickle.npy", np.array([{"a": 1}] * 60, dtype=object), allow_pickle=True)
    (files / "bad.yaml").write_text("loop: {epochs: [")
    (files / "unknown.yaml").write_text("loss: m3g\nlearning_rte: 3\n")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return files


def fails(arguments, capsys):
    code = main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert code == 2, output
    lines = output.err.strip().splitlines()
    assert len(lines) == 1, output.err
    assert lines[0].startswith("m3g: error: ")
    assert "Traceback" not in output.err + output.out
    return lines[0]


CASES = [
    (["--views", "a.npy", "missing.npy"], "missing.npy"),
    (["--views", "a.npy", "short.npy"], r"a 60, short 40"),
    (["--views", "a.npy", "b.npy", "--labels", "labels.npy"], "labels takes 60 entries"),
    (["--views", "a.npy", "hollow.npy"], "only NaN in column 2: remove it"),
    (["--views", "a.npy", "pickle.npy"], "pickle.npy"),
    (["--views", "a.npy"], "k >= 2 files"),
    (["--views", "a.npy", "b.npy", "--data_options.batch_size", "50"], "batch_size takes at most the 42"),
    (["--labels", "labels.npy"], "--labels takes files given with --views"),
    (["--loss", "nonsense"], "loss takes one of"),
    (["--loss_options.nonsense", "3"], "nonsense"),
    (["--loss_options.epsilon", "-1"], "epsilon takes a positive"),
    (["--encoder", "nonsense"], "encoder kind takes one of"),
    (["--encoder", "os.system"], "trust=True"),
    (["--encoder_options.nonsense", "3"], "nonsense"),
    (["--data", "nonsense"], "data takes one of"),
    (["--data_options.nonsense", "3"], "data_options of MultipleFeatures take .*got nonsense"),
    (["--views_per_step", "1"], "views_per_step takes"),
    (["--teacher.student_views", "2"], "teacher.student_views takes"),
    (["--loss", "mmcr", "--teacher.enabled", "true"], "student–teacher form"),
    (["--loop.epochs", "0"], "loop.epochs takes"),
    (["--loop.epochs", "many"], "loop.epochs"),
    (["--loop.precision", "3-bit"], "precision"),
    (["--optim.learning_rate", "-1"], "optim.learning_rate takes"),
    (["--nonsense", "3"], "unrecognized arguments: --nonsense"),
    (["--config", "missing.yaml"], "missing.yaml"),
    (["--config", "bad.yaml"], "bad.yaml|parse|YAML|expected"),
    (["--config", "unknown.yaml"], "learning_rte"),
    (["--resume", "missing"], "there is none at missing"),
    (["--resume"], "there is none under runs/"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_train(here, capsys, arguments, message):
    arguments = [str(here / a) if (here / a).exists() else a for a in arguments]
    line = fails(["train", *arguments], capsys)
    assert re.search(message, line), line
    assert list(here.parent.joinpath("work").iterdir()) == []


def test_an_existing_run_folder_is_not_touched(here, capsys):
    (here / "run").mkdir()
    assert "does: choose another name" in fails(["train", *QUICK, "--out", here / "run"], capsys)
    assert list((here / "run").iterdir()) == []


def test_resume_takes_no_other_settings(here, capsys):
    assert "no other settings" in fails(["train", "--resume", here, "--loop.epochs", "7"], capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "one of the commands train, evaluate"),
        (["evaluate"], "run"),
        (["evaluate", "missing"], "there is none at missing"),
        (["evaluate", "."], "no config.yaml"),
        (["embed", "missing", "--out", "a.txt"], ".npz"),
        (["embed", "missing", "--out", "a.npz"], "there is none at missing"),
        (["losses", "nonsense"], "takes one of"),
        (["data", "nonsense"], "takes one of"),
        (["bench", "nonsense"], "takes one of"),
        (["reproduce", "nonsense"], "takes one of"),
        (["push", "missing", "me/mine"], "finished run"),
    ],
)
def test_other_commands(here, capsys, arguments, message):
    assert message in fails(arguments, capsys)


def test_debug_shows_the_traceback(here, capsys):
    assert main(["train", "--debug", "--loss", "nonsense"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.fixture
def no_hub(monkeypatch):
    """What a machine without a connection gets, without its retries."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_pretrained_encoder_without_a_hub(here, capsys, no_hub):
    line = fails(["train", "--encoder", "transformers", "--encoder_options.model", "nobody/nothing"], capsys)
    assert "check the name and that the hub is reachable" in line


def test_a_hub_that_cannot_be_reached(here, capsys, no_hub):
    assert main(["train", *QUICK, "--data_options.batch_size", "200", "--out", "run"]) == 0
    capsys.readouterr()
    assert "repository takes a name on a hub that can be reached" in fails(["push", "run", "me/mine"], capsys)


@pytest.mark.parametrize(
    "command", ["train", "evaluate", "embed", "losses", "data", "demo", "bench", "reproduce", "push"]
)
def test_help_is_shown(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert "usage: m3g " + command in capsys.readouterr().out


def test_the_overview_names_every_command(capsys):
    assert main([]) == 0
    assert "m3g train --views a.npy b.npy c.npy" in capsys.readouterr().out


def test_a_checkpoint_with_a_pickle_inside_runs_nothing(here, capsys):
    class Malicious:
        def __reduce__(self):
            return (open, (str(here / "trace"), "w"))

    assert main(["train", *QUICK, "--data_options.batch_size", "200", "--out", "run"]) == 0
    capsys.readouterr()
    torch.save({"m3g_checkpoint": 1, "state": Malicious()}, "run/checkpoints/last.ckpt")
    assert "damaged or was written by something else" in fails(["train", "--resume", "run"], capsys)
    assert not (here / "trace").exists()
