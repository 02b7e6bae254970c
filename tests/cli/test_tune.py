"""`m3g tune`: a study that is continued, in one process or several."""

import csv
import shlex
import sys
from pathlib import Path

import optuna
import pytest

from m3g.cli import main
from m3g.training import tuning


def states():
    backend = optuna.storages.journal.JournalFileBackend("study/study.log")
    study = optuna.load_study(study_name="m3g", storage=optuna.storages.JournalStorage(backend))
    return [trial.state.name for trial in study.get_trials()]


@pytest.mark.slow
def test_a_study_is_continued_and_its_best_command_runs(two_views, capsys, monkeypatch):
    used = []
    monkeypatch.setattr(
        tuning, "build_data", lambda config, build=tuning.build_data: used.append(build(config)) or used[0]
    )
    words = ["tune", *two_views, "--losses", "m3g", "infonce-pwe", "--out", "study"]
    assert main([*words, "--trials", "2"]) == 0
    used[0].datasets.pop("test")  # a trial that evaluated the test split would fail
    assert main([*words, "--trials", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("trial ")] == ["0", "1", "2"]
    assert len(states()) == 3
    with open("study/trials.csv") as file:
        rows = list(csv.DictReader(file))
    assert {"trial", "state", "recall_at_1", "loss", "temperature", "learning_rate", "width"} == set(rows[0])
    command = next(line for line in reversed(lines) if line.startswith("command")).removeprefix("command   m3g ")
    assert main([*shlex.split(command), "--out", "best"]) == 0
    assert sorted(path.name for path in Path("study").iterdir()) == [
        "study.log",
        "study.png",
        "trials.csv",
    ]


def test_a_single_loss_replaces_that_of_the_settings(two_views, capsys):
    words = ["tune", *two_views, "--loop.epochs", "1", "--trials", "1", "--out", "study"]
    assert main([*words, "--losses", "infonce-pwe"]) == 0
    assert "--loss infonce-pwe" in capsys.readouterr().out
    with open("study/trials.csv") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == ["infonce-pwe"]


@pytest.mark.slow
def test_two_processes_share_a_study(two_views, monkeypatch):
    assert main(["tune", *two_views, "--trials", "3", "--workers", "2", "--out", "study"]) == 0
    assert 3 <= sum(state in ("COMPLETE", "PRUNED") for state in states()) <= 4


def test_another_study_in_the_folder_is_an_error(two_views, capsys):
    words = ["tune", *two_views, "--loop.epochs", "1", "--trials", "1", "--out", "study"]
    assert main(words) == 0
    assert main([*words, "--seed", "3"]) == 2
    assert (
        "--out must be a new folder, or that of a study with the same settings, metric and losses"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "loss"], "metric must be one of"),
        (["--losses", "m3gg"], "losses must be one of"),
        (["--trials", "0"], "trials must be"),
        (["--data_options.val", "0"], "data_options.val must be a fraction that gives at least 2 validation rows"),
    ],
)
def test_wrong_options_are_rejected(two_views, capsys, words, message):
    assert main(["tune", *two_views, "--out", "study", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_package_is_an_error_that_names_the_extra(two_views, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", *two_views, "--out", "study"]) == 2
    assert capsys.readouterr().err == "m3g: error: optuna is not installed: pip install 'm3g[tune]'.\n"
