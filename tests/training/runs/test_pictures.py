"""The plots of a run: those for which there are numbers."""

import dataclasses

from m3g.training.runs.evaluate import evaluate_run
from m3g.training.runs.folder import Run
from m3g.training.runs.pictures import draw
from pictures import colours


def test_a_run_without_labels_has_no_plot_of_probes(copy, rendered):
    _, pictures = evaluate_run(copy)
    names = [path.name for path in pictures]
    assert names == ["curves.png", "retrieval.png", "missing.png", "map.png"]
    assert all(colours(path) for path in pictures)


def test_curves_require_a_table_of_metrics(copy, monkeypatch):
    calls = []
    monkeypatch.setattr("m3g.training.runs.evaluate.draw", lambda *parts: calls.append(parts) or [])
    evaluate_run(copy)
    (folder, report, test), run = calls[0], Run(copy)
    (run.path / "metrics.csv").unlink()
    names = [path.name for path in draw(run, dataclasses.replace(report, missing={}), test)]
    assert names == ["retrieval.png", "map.png"]
    assert folder.path == run.path
