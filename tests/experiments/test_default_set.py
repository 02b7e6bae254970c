"""A small version of the comparison on the built-in data set."""

import dataclasses
import json
import re

import pytest

from m3g.cli import main
from m3g.experiments import default_set
from m3g.training.runs import evaluate
from m3g.training.settings.config import Config
from pictures import colours


def test_raw_features_are_a_strong_baseline():
    assert default_set.raw_features()["linear_mean"] > 0.97


def test_a_summary_has_mean_and_deviation_over_seeds():
    runs = [dict.fromkeys(default_set.COLUMNS, value) for value in (0.1, 0.2, 0.3)]
    summary = default_set.summary(runs, default_set.COLUMNS)
    assert summary["mean"]["recall_at_1"] == pytest.approx(0.2)
    assert summary["deviation"]["recall_at_1"] == pytest.approx(0.1)


@pytest.mark.slow
def test_demo_prints_the_table_and_the_pictures(tmp_path, monkeypatch, capsys, rendered):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate, "MEASURED", {"train": 400, "test": 100})
    assert main(["demo", "--epochs", "1"]) == 0
    output = capsys.readouterr().out
    (linear,) = [line for line in output.splitlines() if "linear CCA" in line and "│" in line]
    assert len(re.findall(r"\d+\.\d", linear)) == 6
    assert "raw features" in output
    pictures = [line.split()[1] for line in output.splitlines() if line.startswith("picture")]
    assert len(pictures) == 10
    assert all(colours(tmp_path / picture) >= 1 for picture in pictures)


def test_reproduce_chooses_on_validation_splits_and_reports_test_splits(tmp_path, monkeypatch, capsys):
    """Training and measuring are replaced by formulas with known best settings: one for validation, one for test."""
    monkeypatch.chdir(tmp_path)
    trained = []

    def work(settings, folder, data):
        config = Config.from_dict(settings["config"])
        trained.append(config)
        temperature = config.loss_options["temperature"]
        dropout = config.encoder_options.get("dropout", 0.0)
        best = {"val": {"m3g": 0.06, "infonce-pwe": 0.25}[config.loss], "test": 0.1}
        return {
            split: dict.fromkeys(
                default_set.COLUMNS, 0.9 - abs(temperature - best[split]) + dropout / 10 + 0.01 * config.seed
            )
            for split in ("val", "test")
        }

    monkeypatch.setattr(default_set, "EXPERIMENT", dataclasses.replace(default_set.EXPERIMENT, work=work))
    command = ["reproduce", "default-set", "--seeds", "2", "--out", "out"]
    assert main(command) == 0
    results = json.loads((tmp_path / "out" / "default_set.json").read_text())
    for method, temperature, score in (("m3g", 0.06, 0.875), ("infonce-pwe", 0.25, 0.765)):
        best = results["methods"][method]["best"]
        assert (best["temperature"], best["dropout"]) == (temperature, 0.1)
        assert len(results["methods"][method]["tried"]) == 10
        assert results["methods"][method]["mean"]["recall_at_1"] == pytest.approx(score)
    output = capsys.readouterr().out
    assert "87.5±0.7" in output
    assert "76.5±0.7" in output
    splits = {(config.seed, config.data_options["split_seed"]) for config in trained}
    assert splits == {(0, 1), (1, 2)}
    assert len(trained) == 40
    assert main(command) == 0  # nothing is left to do
    assert len(trained) == 40
