"""The comparison on the data set that ships, in small."""

import json

import pytest

from m3g.cli import main
from m3g.evaluation import Report
from m3g.experiments import default_set


def test_raw_features_are_a_strong_baseline():
    assert default_set.raw_features()["linear_mean"] > 0.97


def test_summary_over_seeds():
    runs = [dict.fromkeys(default_set.COLUMNS, value) for value in (0.1, 0.2, 0.3)]
    found = default_set.summary(runs)
    assert found["mean"]["recall_at_1"] == pytest.approx(0.2)
    assert found["deviation"]["recall_at_1"] == pytest.approx(0.1)


@pytest.mark.slow
def test_demo_prints_the_table_and_the_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--epochs", "1"]) == 0
    output = capsys.readouterr().out
    assert "raw features" in output
    pictures = [line.split()[1] for line in output.splitlines() if line.startswith("picture")]
    assert len(pictures) == 8
    assert all((tmp_path / picture).stat().st_size > 1000 for picture in pictures)


def test_reproduce_takes_the_best_setting_of_each_and_writes_the_numbers(tmp_path, monkeypatch, capsys):
    """Training is replaced by a formula with a known best setting, different for every seed."""
    monkeypatch.chdir(tmp_path)

    def formula(config, folder, split, *, polymatching=True):
        value = next(iter(config.loss_options.values()))
        score = 0.9 - abs(value - 0.1) - config.optim.learning_rate + 0.01 * config.seed
        return Report(numbers=dict.fromkeys(default_set.COLUMNS, score))

    monkeypatch.setattr(default_set, "measure", formula)
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["reproduce", "default-set", "--seeds", "2", "--out", "out"]) == 0
    found = json.loads((tmp_path / "out" / "default_set.json").read_text())
    for method in ("m3g", "infonce-pwe"):
        best = found["methods"][method]["best"]
        assert (best["value"], best["learning_rate"]) == (0.1, 2e-3)
        assert len(found["methods"][method]["tried"]) == 6
        assert found["methods"][method]["mean"]["recall_at_1"] == pytest.approx(0.903)
    assert "90.3 ± 0.7" in capsys.readouterr().out
