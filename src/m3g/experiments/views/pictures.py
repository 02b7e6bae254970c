"""Plots of `m3g reproduce views`: average ranks, heat maps, and curves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from m3g.experiments.engine.spec import Result, grid_values
from m3g.experiments.output import figures
from m3g.experiments.output.ranks import Ranks
from m3g.experiments.views import scores as views_scores

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

# Losses in the plot of `front`: the best ones, and some that require the remedies in docs/choose_loss.md.
FRONT = ("m3g", "infonce-pwe", "infonce-ave", "m3g-pairs", "vicreg", "mmcr", "pmrl", "mcca")
CURVE_ARMS = (
    "m3g",
    "infonce-pwe",
    "infonce-ave",
    "m3g, missing in training",
    "linear-mcca",
    "raw",
    "supervised",
    "infonce-pwe, missing in training",
)
TASK_TITLES = {"linear_mean": "linear probe", "recall": "retrieval", "moved": "moved probe"}
BY_NUMBER = {
    "linear_mean": "linear probe",
    "recall": "R@1 from one view to another",
    "recall_rest": "R@1 from all other views",
}


def draw(results: list[Result], tables: dict[str, views_scores.Table], folder: Path) -> list[Path]:
    """Draw all plots that the finished runs allow, as PNG and SVG; return the PNGs. `tables` has a table per metric."""
    tests = views_scores.measured(results)
    made = []
    ranks = {TASK_TITLES[name]: task for name, task in views_scores.ranks_of(tables).items() if name in TASK_TITLES}
    if ranks:
        made += critical_differences(ranks, folder / "ranks")
    made += heat_map(tables, folder / "heat")
    made += missing_curves(tests, folder / "missing")
    made += front(results, folder / "front")
    return _png_files(made)


def critical_differences(ranks: Mapping[str, Ranks], path: Path) -> list[Path]:
    """Plot, for each task, the average rank of every arm, the best first.

    Bars at the right connect arms whose ranks do not differ significantly (Nemenyi test, 5 %).
    """
    most = max(len(task.ranks) for task in ranks.values())
    figure, axes = figures.panels(len(ranks), width=4.6 * len(ranks), height=1.4 + 0.24 * most)
    for axis, (title, task) in zip(axes, ranks.items()):
        arms = list(task.ranks)
        for number, (arm, rank) in enumerate(task.ranks.items()):
            colour = figures.COLOURS[1] if arm.startswith(views_scores.OURS) else "black"
            axis.plot([0, rank], [number, number], color=colour, linewidth=0.6, alpha=0.4)
            axis.plot([rank], [number], "o", color=colour, markersize=4)
            axis.text(rank + 0.3, number, f"{rank:.1f}", fontsize=7, va="center", color=colour)
        axis.set_yticks(range(len(arms)), arms, fontsize=8)
        for label in axis.get_yticklabels():
            label.set_color(figures.COLOURS[1] if label.get_text().startswith(views_scores.OURS) else "black")
        bars = [group for group in task.groups if len(group) > 1]
        end = len(arms) + 2
        for number, group in enumerate(bars):
            ends = [arms.index(group[0]) - 0.3, arms.index(group[-1]) + 0.3]
            axis.plot([end + 0.7 * number] * 2, ends, color=figures.COLOURS[0], linewidth=2.5, solid_capstyle="butt")
        axis.set(xlim=(0, end + 0.7 * len(bars)), ylim=(most - 0.4, -0.6), xlabel="average rank, 1 is best")
        axis.set_title(f"{title}, {task.sets} sets, critical difference {task.critical:.1f}", fontsize=9)
        for side in ("right", "top"):
            axis.spines[side].set_visible(False)
    return figures.save(figure, path)


def heat_map(tables: Mapping[str, views_scores.Table], path: Path) -> list[Path]:
    """Plot arms against data sets; the colour is the difference from the best loss of the column, in points."""
    shown = [name for name in TASK_TITLES if tables[name]]
    if not shown:
        return []
    most = max(len(tables[name]) for name in shown)
    figure, axes = figures.panels(len(shown), width=5.6 * len(shown), height=1.6 + 0.27 * most)
    for axis, name in zip(axes, shown):
        means = {arm: by for arm, by in views_scores.means(tables[name]).items() if not views_scores.is_control(arm)}
        all_sets = dict.fromkeys(data for by in means.values() for data in by)
        shared = views_scores.common(means) or all_sets
        sets = [data for data in all_sets if data in shared]
        losses = [by for arm, by in means.items() if arm not in views_scores.NOT_LOSSES]
        best = {data: max((by[data] for by in losses if data in by), default=math.nan) for data in sets}
        grid = [[100 * (by[d] - best[d]) if d in by else math.nan for d in sets] for by in means.values()]
        image = axis.imshow(grid, cmap="cividis", vmin=-20, vmax=0, aspect="auto")
        for i, by in enumerate(means.values()):
            for j, data in enumerate(sets):
                if data in by:
                    colour = "black" if grid[i][j] > -10 else "white"
                    axis.text(j, i, f"{100 * by[data]:.0f}", ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(sets)), sets, rotation=60, fontsize=7, ha="right")
        axis.set_yticks(range(len(means)), list(means), fontsize=7)
        axis.set_title(TASK_TITLES[name], fontsize=9)
    figure.colorbar(image, ax=list(axes), shrink=0.8, label="difference from the best loss, points")
    return figures.save(figure, path)


def missing_curves(tests: list[Result], path: Path) -> list[Path]:
    """Plot probe and retrieval against the fraction of missing test entries, averaged over the data sets."""
    panels = {name: views_scores.missing_curves(tests, name) for name in ("linear", "recall_rest")}
    if not any(panels.values()):
        return []
    figure, axes = figures.panels(2, width=9.0, height=4.2)
    titles = {"linear": "linear probe, %", "recall_rest": "R@1 from all other views, %"}
    for axis, (name, curves) in zip(axes, panels.items()):
        _lines(axis, {arm: {100 * float(x): [value] for x, value in by.items()} for arm, by in curves.items()})
        axis.set(xlabel="missing test entries, %", ylabel=titles[name])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figures.save(figure, path)


def _lines(axis: Axes, curves: Mapping[str, Mapping[figures.X, Sequence[float]]]) -> None:
    """Plot mean and standard deviation, in percent, of several values at every x, a line per arm of `CURVE_ARMS`."""
    for number, arm in enumerate(CURVE_ARMS):
        if arm in curves:
            xs = sorted(curves[arm])
            values = [[100 * value for value in curves[arm][x]] for x in xs]
            spread = [statistics.stdev(part) if len(part) > 1 else 0.0 for part in values]
            means = [statistics.fmean(part) for part in values]
            axis.errorbar(
                xs, means, spread if any(spread) else None, label=arm, capsize=2, markersize=4, **figures.style(number)
            )
    axis.grid(alpha=0.3)


def front(results: list[Result], path: Path) -> list[Path]:
    """Plot probe against retrieval for every setting of the grids, on validation rows, averaged over the data sets.

    Arms that are validated only by retrieval from all other views (`recall_rest`) are not shown.
    """
    points: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    for row in results:
        labels, metrics = row["labels"], row["metrics"]
        shown = metrics.keys() >= {"linear_mean", "recall"}
        if labels["stage"] == "grid" and views_scores.BATCH not in labels and shown:
            setting = views_scores.setting(grid_values(labels))
            by_data = points.setdefault(labels["arm"], {}).setdefault(setting, {})
            by_data[labels["data"]] = (metrics["linear_mean"], metrics["recall"])
    shared = views_scores.common({arm: set.intersection(*map(set, at.values())) for arm, at in points.items()})
    lines = {
        arm: {setting: [at[data] for data in shared] for setting, at in points[arm].items() if shared <= set(at)}
        for arm in FRONT
        if shared and arm in points
    }
    lines = {arm: by for arm, by in lines.items() if by}
    if not lines:
        return []
    figure, (axis,) = figures.panels(1, width=6.5, height=4.5)
    for number, (arm, by) in enumerate(lines.items()):
        settings = sorted(by, key=_sort_key)
        xs = [100 * statistics.fmean(x for x, _ in by[s]) for s in settings]
        ys = [100 * statistics.fmean(y for _, y in by[s]) for s in settings]
        style = figures.style(number)
        axis.plot(xs, ys, label=arm, markersize=4, linewidth=1, **style)
        axis.annotate(settings[0], (xs[0], ys[0]), (4, 3), textcoords="offset points", fontsize=6, color=style["color"])
    axis.set(xlabel="linear probe, % (validation)", ylabel="R@1, % (validation)")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=7, ncols=2)
    return figures.save(figure, path)


def _sort_key(setting: str) -> tuple[bool, list[float]]:
    """Return the sort key of a setting: by value; settings with linear CCA come last."""
    return "canonical" in setting, [float(value) for value in setting.removesuffix(" canonical").split(", ")]


def by_number(tests: list[Result], path: Path) -> list[Path]:
    """Plot probe and retrieval on the digits against the number of views in training and testing; return the PNG."""
    panels = {name: views_scores.by_number(tests, name) for name in BY_NUMBER}
    if not any(panels.values()):
        return []
    figure, axes = figures.panels(len(panels), width=4.0 * len(panels), height=3.4)
    for axis, (name, curves) in zip(axes, panels.items()):
        _lines(axis, curves)
        axis.set(xlabel="views k", title=f"{BY_NUMBER[name]}, %")
        axis.locator_params(axis="x", integer=True)
    axes[0].legend(frameon=False, fontsize=7)
    return _png_files(figures.save(figure, path))


def _png_files(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".png"]
