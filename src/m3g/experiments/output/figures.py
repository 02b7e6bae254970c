"""Figures as PNG and SVG with accessible colours, markers that are distinguishable in greyscale, and error bands."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from m3g import _checks

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's palette
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = "osD^vP*X"
MAX_TICKS = 8  # up to this number of values of x, each has a tick
X = TypeVar("X", bound=float)
Line = Mapping[X, tuple[float, float]]  # mean and half width of the interval by x


def panels(columns: int = 1, *, rows: int = 1, width: float = 6.0, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """Return a figure that requires no display, and its axes."""
    figure = _checks.extra("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


class Style(TypedDict):
    """Colour and marker of an arm, as keyword arguments of matplotlib."""

    color: str
    marker: str


def style(number: int) -> Style:
    """Return the colour and the marker of the arm with this number."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}


def save(figure: Figure, path: Path) -> list[Path]:
    """Save a figure as PNG and SVG, deterministically; return the paths of both files."""
    files = [path.with_suffix(".png"), path.with_suffix(".svg")]
    with _checks.extra("matplotlib", "plot").rc_context({"svg.hashsalt": "m3g"}):
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    return files


def curves(
    lines: Mapping[str, Line[X]],
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    logarithmic: bool = False,
    published: Mapping[str, Line[X]] | None = None,
) -> list[Path]:
    """Plot lines with error bands, from (mean, half width of the interval) by x; `published` has a separate panel.

    `logarithmic` applies to the x axis. The y axis of a panel is logarithmic if its means are positive and differ by
    more than a factor of 20.
    """
    shown = [lines] if published is None else [lines, published]
    names = list(dict.fromkeys(name for part in shown for name in part))
    legend_rows = -(-len(names) // 2) if len(names) > 1 else 0
    figure, axes = panels(len(shown), width=5.0 if published is None else 7.5, height=3.2 + 0.2 * legend_rows)
    handles: dict[str, Line2D] = {}
    for axis, part, title in zip(axes, shown, ("measured here", "published")):
        for name, points in part.items():
            number, xs = names.index(name), sorted(points)
            means = [points[x][0] for x in xs]
            line = "-" if number < len(COLOURS) else "--"
            (handles[name],) = axis.plot(xs, means, line, markersize=5, **style(number))
            low, high = ([_clip(points[x][0] + sign * points[x][1], ylabel) for x in xs] for sign in (-1, 1))
            axis.fill_between(xs, low, high, color=style(number)["color"], alpha=0.15, linewidth=0)
        _scales(axis, part, logarithmic)
        axis.set(xlabel=xlabel, ylabel=ylabel, title=title if published is not None else "")
        axis.grid(alpha=0.3)
    if legend_rows:
        ordered = [handles[name] for name in names]
        figure.legend(ordered, names, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return save(figure, path)


def _clip(value: float, label: str) -> float:
    """Return a bound of an interval, restricted to the range from 0 to 100 if it is a percentage."""
    return min(max(value, 0.0), 100.0) if label.endswith(", %") else value


def _scales(axis: Axes, lines: Mapping[str, Line[X]], logarithmic: bool) -> None:
    """Set ticks at the measured values, and logarithmic axes if requested or if values differ much."""
    xs = sorted({float(x) for points in lines.values() for x in points})
    ys = [mean for points in lines.values() for mean, _ in points.values()]
    if logarithmic:
        axis.set_xscale("log")
        axis.minorticks_off()
    if len(xs) <= MAX_TICKS:
        axis.set_xticks(xs, [f"{x:g}" for x in xs])
    if ys and min(ys) > 0 and max(ys) > 20 * min(ys):
        axis.set_yscale("log")


def scatter(
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]], path: Path, *, xlabel: str, ylabel: str
) -> list[Path]:
    """Plot the named points (x, y, half width of the interval of y) of every arm."""
    figure, (axis,) = panels()
    axis.margins(x=0.25)
    for number, (arm, points) in enumerate(groups.items()):
        xs, ys, widths = (list(part) for part in zip(*points.values()))
        axis.errorbar(xs, ys, yerr=widths, linestyle="", capsize=2, label=arm, **style(number))
        for name, (x, y, _) in points.items():
            offset = -11 if number else 4  # avoids overlapping labels of close points
            axis.annotate(name, (x, y), textcoords="offset points", xytext=(6, offset), fontsize=8)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    return save(figure, path)


def points(groups: Mapping[str, Mapping[str, tuple[float, float]]], path: Path, *, ylabel: str) -> list[Path]:
    """Plot, for each group (such as an unseen domain), a point with its interval for every arm, side by side."""
    names = list(dict.fromkeys(arm for arms in groups.values() for arm in arms))
    figure, (axis,) = panels(width=max(6.0, 1.3 * len(groups)))
    distance = min(0.14, 0.8 / len(names))  # so that groups do not overlap
    for number, arm in enumerate(names):
        offset = (number - (len(names) - 1) / 2) * distance
        shown = [(x + offset, *arms[arm]) for x, arms in enumerate(groups.values()) if arm in arms]
        xs, means, widths = (list(part) for part in zip(*shown))
        axis.errorbar(xs, means, yerr=widths, linestyle="", capsize=2, label=arm, **style(number))
    axis.set_xticks(range(len(groups)), [textwrap.fill(name, 14) for name in groups])
    axis.set(ylabel=ylabel)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    return save(figure, path)


def heat_maps(
    maps: Mapping[str, Sequence[Sequence[float | None]]], names: Sequence[str], path: Path, *, rows: str, columns: str
) -> list[Path]:
    """Plot one square map per arm with numbers in the cells and a common scale; empty cells stay white."""
    across = min(3, len(maps))
    down = -(-len(maps) // across)
    figure, axes = panels(across, rows=down, width=2.5 * across + 0.8, height=2.7 * down + 0.5)
    flat = [value for grid in maps.values() for line in grid for value in line if value is not None]
    for number, (axis, (arm, grid)) in enumerate(zip(axes, maps.items())):
        shown = [[float("nan") if value is None else value for value in line] for line in grid]
        image = axis.imshow(shown, cmap="cividis", vmin=min(flat), vmax=max(flat))
        middle = (min(flat) + max(flat)) / 2
        for i, line in enumerate(grid):
            for j, value in enumerate(line):
                if value is not None:
                    colour = "black" if value > middle else "white"
                    axis.text(j, i, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=9)
        first, last = number % across == 0, number // across == down - 1
        axis.set_xticks(range(len(names)), names if last else [""] * len(names), rotation=60, fontsize=9)
        axis.set_yticks(range(len(names)), names if first else [""] * len(names), fontsize=9)
        axis.set_title(arm, fontsize=10)
        axis.set_xlabel(columns if last else "", fontsize=9)
        axis.set_ylabel(rows if first else "", fontsize=9)
    for axis in axes[len(maps) :]:
        axis.remove()
    figure.colorbar(image, ax=list(axes[: len(maps)]), shrink=0.8, label="accuracy, %")
    return save(figure, path)
