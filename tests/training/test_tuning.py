"""`m3g tune`: a real study that is continued, in one process or several, on the validation split only."""

import csv
import shlex
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest

from m3g.cli import main
from m3g.training import tuning
from m3g.training.settings.config import Config

QUICK = ["--loop.epochs", "2", "--loop.evaluate_every", "1", "--heads.hidden", "8", "--data_options.batch_size", "20"]


@pytest.fixture
def views(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((80, 4))
    for name in ("a", "b"):
        np.save(f"{name}.npy", objects @ rng.standard_normal((4, 6)))
    return ["--views", "a.npy", "b.npy", *QUICK]


def states():
    backend = optuna.storages.journal.JournalFileBackend("study/study.log")
    study = optuna.load_study(study_name="m3g", storage=optuna.storages.JournalStorage(backend))
    return [trial.state.name for trial in study.get_trials()]


@pytest.mark.slow
def test_a_study_is_continued_and_its_best_command_runs(views, capsys, monkeypatch):
    used = []
    monkeypatch.setattr(
        tuning, "build_data", lambda config, build=tuning.build_data: used.append(build(config)) or used[0]
    )
    words = ["tune", *views, "--losses", "m3g", "infonce-pwe", "--out", "study"]
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


@pytest.mark.slow
def test_two_processes_share_a_study(views, monkeypatch):
    assert main(["tune", *views, "--trials", "3", "--workers", "2", "--out", "study"]) == 0
    assert 3 <= sum(state in ("COMPLETE", "PRUNED") for state in states()) <= 4


def test_a_trial_below_the_others_is_pruned(views, tmp_path):
    config = Config.from_dict({"data": "arrays", "data_options": {"paths": ["a.npy", "b.npy"]}, "loop": {"epochs": 2}})
    config.loop.evaluate_every = 1
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=2.0))
    data = tuning.build_data(config)

    def objective(trial):
        report = tuning.Report(tmp_path / "run", every=1, trial=trial, metric="recall_at_1")
        tuning.train(config, tmp_path / "run", data=data, callbacks=[report])
        return report.value

    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state.name == "PRUNED"
    assert list(trial.intermediate_values) == [1]


def test_given_settings_are_kept(views):
    given = {"loss_options": {"temperature": 0.1}, "optim": {"learning_rate": 0.01}, "encoder_options": {"width": 32}}
    config = Config.from_dict({"data": "arrays", "data_options": {"paths": ["a.npy", "b.npy"]}, **given})
    data = tuning.build_data(config)
    trial = optuna.create_study().ask()
    assert tuning.suggest(trial, config, data, ("m3g",)) == config
    assert trial.params == {}


def test_another_study_in_the_folder_is_an_error(views, capsys):
    words = ["tune", *views, "--loop.epochs", "1", "--trials", "1", "--out", "study"]
    assert main(words) == 0
    assert main([*words, "--seed", "3"]) == 2
    assert "--out must be a new folder for other settings, metric or losses" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metric", "loss"], "metric must be one of"),
        (["--losses", "m3gg"], "losses must be one of"),
        (["--trials", "0"], "trials must be"),
        (["--data_options.val", "0"], "data_options.val must be a fraction that leaves at least 2 rows to tune on"),
    ],
)
def test_wrong_options_are_rejected(views, capsys, words, message):
    assert main(["tune", *views, "--out", "study", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_package_is_an_error_that_names_the_extra(views, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["tune", *views, "--out", "study"]) == 2
    assert capsys.readouterr().err == "m3g: error: optuna is not installed: pip install 'm3g[tune]'.\n"
