"""Figures as PNG and SVG: colours that the colour-blind tell apart, markers that print in grey, error bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from m3g import _checks

# Okabe and Ito's palette
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = "osD^vP*X"
Line = Mapping[Any, tuple[float, float]]  # mean and half width of the interval by x


def panels(columns: int = 1, *, width: float = 6.0, height: float = 3.6) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a display."""
    figure_module: Any = _checks.extra("matplotlib.figure", "plot")
    figure = figure_module.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def save(figure: Any, path: Path) -> list[Path]:
    """`path` as PNG and SVG; the same numbers give the same files."""
    files = [path.with_suffix(".png"), path.with_suffix(".svg")]
    matplotlib: Any = _checks.extra("matplotlib", "plot")
    with matplotlib.rc_context({"svg.hashsalt": "m3g"}):
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    return files


def curves(
    lines: Mapping[str, Line],
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    logarithmic: bool = False,
    published: Mapping[str, Line] | None = None,
) -> list[Path]:
    """Lines of (mean, half width of the interval) by x, each with its band; the paper's in a panel beside them."""
    shown = [lines] if published is None else [lines, published]
    figure, axes = panels(len(shown), width=6.0 if published is None else 10.0, height=4.0)
    names = list(dict.fromkeys(name for part in shown for name in part))
    for axis, part, title in zip(axes, shown, ("measured here", "published")):
        for name, points in part.items():
            place, xs = names.index(name), sorted(points)
            means = [points[x][0] for x in xs]
            colour = COLOURS[place % len(COLOURS)]
            axis.plot(xs, means, color=colour, marker=MARKERS[place % len(MARKERS)], label=name)
            low, high = ([points[x][0] + sign * points[x][1] for x in xs] for sign in (-1, 1))
            axis.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
        if logarithmic:
            axis.set_xscale("log")
        axis.set(xlabel=xlabel, ylabel=ylabel, title=title if published is not None else "")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=7)
    return save(figure, path)


def scatter(
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]], path: Path, *, xlabel: str, ylabel: str
) -> list[Path]:
    """Per arm its named points (x, y, half width of the interval of y)."""
    figure, (axis,) = panels()
    for place, (arm, points) in enumerate(groups.items()):
        xs, ys, widths = (list(part) for part in zip(*points.values()))
        axis.errorbar(
            xs, ys, yerr=widths, linestyle="", capsize=2,
            color=COLOURS[place % len(COLOURS)], marker=MARKERS[place % len(MARKERS)], label=arm,
        )  # fmt: skip
        for name, (x, y, _) in points.items():
            axis.annotate(name, (x, y), textcoords="offset points", xytext=(6, 4), fontsize=7)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return save(figure, path)


def points(groups: Mapping[str, Mapping[str, tuple[float, float]]], path: Path, *, ylabel: str) -> list[Path]:
    """Per group (an unseen domain, say) a point with its interval for every arm, side by side."""
    names = list(dict.fromkeys(arm for arms in groups.values() for arm in arms))
    figure, (axis,) = panels(width=max(6.0, 1.3 * len(groups)))
    for place, arm in enumerate(names):
        offset = (place - (len(names) - 1) / 2) * 0.14
        shown = [(x + offset, *arms[arm]) for x, arms in enumerate(groups.values()) if arm in arms]
        xs, means, widths = (list(part) for part in zip(*shown))
        axis.errorbar(
            xs, means, yerr=widths, linestyle="", capsize=2,
            color=COLOURS[place % len(COLOURS)], marker=MARKERS[place % len(MARKERS)], label=arm,
        )  # fmt: skip
    axis.set_xticks(range(len(groups)), list(groups))
    axis.set(ylabel=ylabel)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return save(figure, path)


def heat_maps(maps: Mapping[str, Any], names: Sequence[str], path: Path, *, rows: str, columns: str) -> list[Path]:
    """One square map per arm, numbers in the cells, one scale for all; empty cells stay white."""
    figure, axes = panels(len(maps), width=3.2 * len(maps) + 0.6, height=3.4)
    flat = [value for grid in maps.values() for row in grid for value in row if value is not None]
    for axis, (arm, grid) in zip(axes, maps.items()):
        shown = [[float("nan") if value is None else value for value in row] for row in grid]
        image = axis.imshow(shown, cmap="cividis", vmin=min(flat), vmax=max(flat))
        middle = (min(flat) + max(flat)) / 2
        for i, row in enumerate(grid):
            for j, value in enumerate(row):
                if value is not None:
                    colour = "black" if value > middle else "white"
                    axis.text(j, i, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
        axis.set_xticks(range(len(names)), names, rotation=60, fontsize=7)
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.set_title(arm, fontsize=9)
        axis.set_xlabel(columns, fontsize=8)
    axes[0].set_ylabel(rows, fontsize=8)
    figure.colorbar(image, ax=list(axes), shrink=0.8)
    return save(figure, path)
