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


def _curves(folder: Run) -> dict[str, Series]:
    rows, probes = (Table(folder.path / name).rows() for name in ("metrics.csv", "probes.csv"))
    panels: dict[str, Series] = {}
    if rows:
        panels["Training loss"] = {"loss": _series(rows, "loss")}
    scores = [name for name in ("linear_mean", "knn_mean", "recall_at_1") if probes and name in probes[0]]
    if scores:
        panels["On the validation split"] = {name: _series(probes, name) for name in scores}
    return panels


def _series(rows: list[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    kept = [row for row in rows if name in row]
    return [row["step"] for row in kept], [row[name] for row in kept]
