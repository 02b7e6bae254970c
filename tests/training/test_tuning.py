"""Trials of `m3g tune`: pruning, the settings that are searched, and the metrics that require labels."""

import optuna
import pytest

from m3g.training import tuning
from m3g.training.settings.config import Config


def test_a_trial_below_the_others_is_pruned(two_views, tmp_path):
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


def test_settings_that_are_given_are_not_searched(two_views):
    given = {"loss_options": {"temperature": 0.1}, "optim": {"learning_rate": 0.01}, "encoder_options": {"width": 32}}
    config = Config.from_dict({"data": "arrays", "data_options": {"paths": ["a.npy", "b.npy"]}, **given})
    data = tuning.build_data(config)
    trial = optuna.create_study().ask()
    assert tuning.suggest(trial, config, data, ()) == config
    assert trial.params == {}


def test_accuracies_require_labels(two_views, tmp_path):
    config = Config.from_dict({"data": "arrays", "data_options": {"paths": ["a.npy", "b.npy"]}})
    with pytest.raises(ValueError, match=r"metric must be retrieval if the data has no labels, got 'linear'\."):
        tuning.tune(config, tmp_path / "study", metric="linear")
    assert not (tmp_path / "study").exists()


def test_a_trial_that_max_steps_ends_within_an_epoch_is_evaluated(two_views, tmp_path):
    config = Config.from_dict({"data": "arrays", "data_options": {"paths": ["a.npy", "b.npy"]}})
    config.loop.max_steps, config.loop.accelerator = 1, "cpu"
    (trial,) = tuning.tune(config, tmp_path / "study", trials=1).trials
    assert trial.state.name == "COMPLETE"
    assert list(trial.intermediate_values) == [1]
