"""Grids, in one and in two stages, and the runs that evaluate them."""

import pytest

from m3g.experiments.engine.pool import do_all
from m3g.experiments.engine.spec import Experiment, Request, RunSpec
from m3g.experiments.engine.store import Store
from m3g.experiments.runner.arms import (
    LENGTHS,
    RATE,
    TEMPERATURE,
    TEMPERATURES,
    grid,
    grid_runs,
    other_lengths,
    temperature_then_rate,
)

RUN = RunSpec("test", {"config": {"loop": {"max_steps": 200}, "seed": 3}}, {"arm": "m3g", "stage": "test", "seed": 3})


def test_a_grid_has_every_combination():
    changes = grid("infonce-pwe", {"infonce": ("temperature", (0.1, 0.2))}, (1e-3, 3e-3))
    assert [tuple(change.values()) for change in changes] == [(0.1, 1e-3), (0.1, 3e-3), (0.2, 1e-3), (0.2, 3e-3)]
    assert set(changes[0]) == {"loss_options.temperature", "optim.learning_rate"}


def test_every_setting_is_evaluated_by_runs_of_the_grid():
    changes = [{"loss_options.epsilon": value} for value in (0.1, 0.2)]
    tried, candidates = grid_runs(changes, [RUN, RUN.with_changes({"config": {"seed": 4}}, seed=4)])
    assert [run.settings["config"]["loss_options"]["epsilon"] for run in tried] == [0.1, 0.1, 0.2, 0.2]
    assert {run.labels["stage"] for run in tried} == {"grid"}
    assert [candidate.change for candidate in candidates] == changes
    assert [run for candidate in candidates for run in candidate.evaluated_by] == [run.id for run in tried]


def test_other_lengths_differ_only_in_their_steps():
    runs = other_lengths(RUN, Request())
    assert [run.settings["config"]["loop"]["max_steps"] for run in runs] == list(LENGTHS)
    assert [run.labels["steps"] for run in runs] == list(LENGTHS)
    assert all(run.settings["config"]["seed"] == 3 and run.labels["stage"] == "length" for run in runs)


def work(settings, folder, data):
    """Score highest at temperature 0.12 and learning rate 0.01."""
    config = settings["config"]
    temperature = config.get("loss_options", {}).get("temperature", 0.12)
    return {"validation": -abs(temperature - 0.12) - abs(config["optim"]["learning_rate"] - 0.01)}


@pytest.mark.parametrize(("has_temperature", "count"), [(True, len(TEMPERATURES) + 2), (False, 3)])
def test_the_best_temperature_is_kept_for_the_other_rates(tmp_path, has_temperature, count):
    tuning = RunSpec("test", {"config": {"optim": {"learning_rate": 0.003}, "loss_options": {}, "seed": 100}}, {})
    tuned = temperature_then_rate(tuning, (0.003, 0.001, 0.01), has_temperature=has_temperature)
    final = tuned.chosen(tuning.with_changes({"config": {"seed": 0}}))
    store = Store(tmp_path)
    experiment = Experiment("test", lambda request: [], work, lambda results, folder: "")
    assert do_all(experiment, [*tuned.runs, final], store, tmp_path, pause=0.01) == {}
    results = store.results()
    rates = [results[run.id]["settings"]["config"]["optim"]["learning_rate"] for run in tuned.runs]
    assert len(rates) == count
    assert set(rates) == {0.003, 0.001, 0.01}
    assert results[final.id]["chosen"] == {RATE: 0.01} | ({TEMPERATURE: 0.12} if has_temperature else {})
