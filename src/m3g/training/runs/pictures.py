"""Plots of a run: curves, matrices between views, scores with missing views, and a map."""

from __future__ import annotations

from pathlib import Path

from m3g.evaluation import Embedded, Report
from m3g.evaluation.map import plot_map
from m3g.evaluation.plots import Series, plot_curves, plot_matrix, plot_missing
from m3g.training.loop.logs import Table
from m3g.training.runs.folder import Run


def draw(folder: Run, report: Report, test: Embedded) -> list[Path]:
    """Plot an evaluation of the test rows; return the files."""
    pictures, names = [], list(test.view_names or ())
    curves = _curves(folder)
    if curves:
        pictures.append(plot_curves(curves, folder.plots / "curves.png"))
    pictures.append(
        plot_matrix(
            report.matrices["recall_at_1"],
            names,
            folder.plots / "retrieval.png",
            title="R@1",
            chance=report.chance.get("recall_at_1"),
            diagonal=False,  # the retrieval of a view from itself is trivial
        )
    )
    if "transfer" in report.matrices:
        pictures.append(
            plot_matrix(
                report.matrices["transfer"],
                names,
                folder.plots / "transfer.png",
                title="Accuracy of a probe moved between views",
                rows="trained on",
                columns="tested on",
                chance=report.chance.get("linear_transfer"),
            )
        )
    if report.missing:
        pictures.append(plot_missing(report.missing, folder.plots / "missing.png"))
    assert test.embeddings is not None
    pictures.append(
        plot_map(
            test.embeddings,
            folder.plots / "map.png",
            labels=test.labels,
            class_names=test.class_names,
            view_names=names,
            mask=test.mask,
            title="Test points in every view",
        )
    )
    return pictures


CURVES = {"metrics.csv": ("loss",), "probes.csv": ("linear_mean", "knn_mean", "recall_at_1")}


def logged(run: Run) -> dict[str, tuple[list[float], list[float]]]:
    """Return the steps and the values of each logged quantity in `CURVES`."""
    series = {}
    for file, names in CURVES.items():
        rows = Table(run.path / file).rows()
        for name in names:
            kept = [row for row in rows if name in row]
            if kept:
                series[name] = [row["step"] for row in kept], [row[name] for row in kept]
    return series


def _curves(run: Run) -> dict[str, Series]:
    series = logged(run)
    loss = {name: series.pop(name) for name in CURVES["metrics.csv"] if name in series}
    panels = {"Training loss": loss, "On the validation split": series}
    return {title: lines for title, lines in panels.items() if lines}
