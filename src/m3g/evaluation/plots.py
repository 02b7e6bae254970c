"""Plots of a report: curves over training, matrices between views, scores with missing views."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from m3g import _checks
from m3g.evaluation.missing import Missing, Score

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def new_figure(columns: int, *, width: float = 5.5, height: float = 4.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with one row of axes; it requires no display and no global state of matplotlib."""
    figure_class = _checks.extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(width * columns, height), layout="constrained", dpi=130)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure to a file atomically, and return the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for text in figure.findobj(_checks.extra("matplotlib.text", "plot").Text):
        text.set_parse_math(False)  # a $ in a user's name must not start a formula
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:] or None)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content.getvalue())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    return path


def plot_curves(panels: Mapping[str, Series], path: str | Path, *, x_label: str = "step") -> Path:
    """Plot curves `{title: {name: (x, y)}}`: one panel per title, with one line per name."""
    if not panels:
        raise ValueError("panels must have at least one panel of curves, got none.")
    figure, axes = new_figure(len(panels))
    for axis, (title, series) in zip(axes, panels.items()):
        for name, (x, y) in series.items():
            # Short curves have markers, because a line through a single point is not visible.
            axis.plot(x, y, label=name, linewidth=1.8, marker="o" if len(x) < 30 else None, markersize=3.5)
        axis.set(title=title, xlabel=x_label)
        axis.locator_params(axis="x", integer=True)  # steps, epochs, numbers of views
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if series:
            axis.legend(frameon=False)
    return save(figure, path)


def plot_matrix(
    matrix: Tensor,
    names: Sequence[str],
    path: str | Path,
    *,
    title: str,
    rows: str = "query view",
    columns: str = "searched view",
    percent: bool = True,
    chance: float | None = None,
    diagonal: bool = True,
) -> Path:
    """Plot a matrix (k, k) between views with its values; fractions are shown in percent.

    `chance` is shown under the title. Without `diagonal`, the cells of a view with itself are empty.
    """
    k = len(names)
    if tuple(matrix.shape) != (k, k):
        raise ValueError(f"matrix must have shape ({k}, {k}) for {k} names, got {_checks.shape_of(matrix)}.")
    values = matrix.double().cpu().numpy() * (100 if percent else 1)
    size = max(4.6, 1.7 + 0.75 * k)
    figure, (axis,) = new_figure(1, width=size + 0.8, height=size)
    if not diagonal:
        np.fill_diagonal(values, np.nan)
    low, high = (0.0, 100.0) if percent else (float(np.nanmin(values)), float(np.nanmax(values)))
    high = max(high, low + 1e-9)
    axis.set_facecolor("0.92")
    image = axis.imshow(values, cmap="viridis", vmin=low, vmax=high)
    axis.set_xticks(range(k), names, rotation=40, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(k), names)
    if chance is not None:
        title += f"\nchance is {100 * chance:.3g} %" if percent else f"\nchance is {chance:.3g}"
    axis.set(title=title, xlabel=columns, ylabel=rows)
    for l in range(k):
        for m in range(k):
            if np.isnan(values[l, m]):
                continue
            dark = (values[l, m] - low) / (high - low) < 0.6
            text = f"{values[l, m]:.0f}" if percent or values[l, m] >= 10 else f"{values[l, m]:.1f}"
            axis.text(m, l, text, ha="center", va="center", color="white" if dark else "black")
    figure.colorbar(image, ax=axis, label="%" if percent else None, shrink=0.85)
    return save(figure, path)


_BLUE, _ORANGE = "#0072b2", "#d55e00"
# Panels of the plot of missing views: title, and the name, label and colour of each line.
_MISSING: tuple[tuple[str, tuple[tuple[Score, str, str], ...]], ...] = (
    (
        "Accuracy of a probe",
        (
            ("linear", "embeddings of the shown views", _BLUE),
            ("linear_raw", "raw features of the shown views", _ORANGE),
        ),
    ),
    ("R@1 in a view that is not shown", (("recall_at_1", "query from the shown views", _BLUE),)),
)


def plot_missing(missing: Missing, path: str | Path) -> Path:
    """Plot the result of `without_views` (missing.py): scores by drop rate, and by subset of the views."""
    available = [(title, [line for line in lines if line[0] in missing["curve"]]) for title, lines in _MISSING]
    measures = [(title, lines) for title, lines in available if lines]
    figure, axes = new_figure(2 * len(measures), width=4.6)
    subsets = "every subset" if missing["every_subset"] else "some subsets of each size"
    for column, (title, lines) in enumerate(measures):
        curve, dots = axes[column], axes[len(measures) + column]
        for shift, (name, label, colour) in enumerate(lines):
            values, shares = (
                [np.nan if value is None else 100 * value for value in missing["curve"][key]] for key in (name, "share")
            )
            curve.plot(shares, values, "o-", color=colour, label=label)
            scores = [(len(part["views"]), part[name]) for part in missing["subsets"]]
            known = [(size, 100 * score) for size, score in scores if score is not None]
            sizes = sorted({size for size, _ in known})
            means = [np.mean([value for other, value in known if other == size]) for size in sizes]
            dots.plot([s + shift / 6 for s, _ in known], [value for _, value in known], ".", color=colour, alpha=0.4)
            dots.plot([s + shift / 6 for s in sizes], means, "-", color=colour, label=f"{label}, mean")
        curve.set(title=title, xlabel="drop rate, % (every object keeps at least one view)", ylabel="%")
        dots.set(title=title, xlabel=f"number of views shown (a dot is a subset; {subsets})", ylabel="%")
        dots.locator_params(axis="x", integer=True)
        for axis in (curve, dots):
            axis.axhline(100 * missing["chance"][lines[0][0]], color="0.4", linestyle=":", label="chance")
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=8)
    return save(figure, path)
