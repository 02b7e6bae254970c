"""Evaluation of a run: views that test rows lack, and the printed results."""

import json

import pytest

from animals import write_csv
from m3g.cli import main
from m3g.evaluation import METRICS, Report
from m3g.training.runs import evaluate


def test_a_view_that_no_test_row_has_is_excluded_from_the_scores(tmp_path, capsys):
    content = [
        {
            "a": [i % 3, 1.0 + i, 2.0],
            "b": [1.0 * i, 2.0],
            "c": None if i >= 30 else [3.0, 1.0 * i],
            "kind": f"kind {i % 3}",
            "part": "test" if i >= 30 else "train",
        }
        for i in range(45)
    ]
    table = write_csv(tmp_path, content)
    options = ["--data_options.batch_size", "10", "--loop.epochs", "1", "--loop.evaluate_every", "0"]
    columns = ["--labels", "kind", "--split", "part"]
    assert main(["train", "--table", str(table), *columns, *options, "--out", str(tmp_path / "run")]) == 0
    assert "evaluated without c: missing from all test rows" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "results.json").read_text())["views"] == ["a", "b"]


@pytest.mark.parametrize("columns", [80, 160])
def test_measures_are_explained_in_wide_terminals(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    numbers = {"recall_from_others": 0.25, "uniformity": -1.5}
    evaluate.show(Report(numbers, chance={"recall_from_others": 0.01}), [])
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if "recall_from_others" in line]  # not abbreviated
    assert "0.2500" in row
    assert "0.0100" in row
    assert (METRICS["recall_from_others"][:20] in row) == (columns == 160)
    assert any("m3g report RUN or a terminal" in line for line in lines) == (columns == 80)
    assert max(map(len, lines)) <= columns
