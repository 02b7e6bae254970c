"""Grids in two stages: temperatures at one learning rate, then the other rates."""

import pytest

from m3g.experiments.engine.pool import do_all
from m3g.experiments.engine.spec import Experiment, RunSpec
from m3g.experiments.engine.store import Store
from m3g.experiments.runner.arms import RATE, TEMPERATURE, TEMPERATURES, temperature_then_rate


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
