"""Evaluation of views that test rows lack."""

import json

from animals import write_csv
from m3g.cli import main


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
