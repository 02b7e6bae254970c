"""Pictures of `m3g reproduce views`: critical differences, a heat map, and curves against absent entries."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from m3g.experiments import figures, views_scores
from m3g.experiments.ranks import Ranks
from m3g.experiments.spec import Result

SHOWN = ("m3g", "infonce-pwe", "infonce-ave", "m3g, absent in training", "linear-mcca", "raw", "supervised")
PICTURED = {"linear_mean": "linear probe", "recall": "retrieval", "moved": "moved probe"}
BY_NUMBER = {
    "linear_mean": "linear probe",
    "recall": "found from one view in another",
    "recall_rest": "found from all other views",
}


def draw(results: list[Result], every: Mapping[str, Any], folder: Path) -> list[Path]:
    """All pictures that the finished runs allow, as PNG and SVG; returns the PNGs."""
    tests = views_scores.tested(results)
    made = []
    ranks = {name: found for name, found in views_scores.ranks_of(dict(every)).items() if name in PICTURED}
    if ranks:
        made += critical_differences({PICTURED[name]: found for name, found in ranks.items()}, folder / "ranks")
    made += heat_map(every, folder / "heat")
    made += absent_curves(tests, folder / "absent")
    made += front(results, folder / "front")
    return _shown(made)


def critical_differences(ranks: Mapping[str, Ranks], path: Path) -> list[Path]:
    """Per task the average ranks on a line; a bar joins arms whose ranks do not differ (Nemenyi, 5 %)."""
    most = max(len(found.ranks) for found in ranks.values())
    figure, axes = figures.panels(len(ranks), width=4.6 * len(ranks), height=1.6 + 0.24 * most)
    for axis, (title, found) in zip(axes, ranks.items()):
        count = len(found.ranks)
        axis.set(xlim=(0.5, count + 0.5), ylim=(-most - 0.5, 2.0), title=f"{title}, {found.sets} sets")
        axis.plot([1, 1 + found.critical], [1.6, 1.6], color="black", linewidth=1.5)
        axis.text(1 + found.critical / 2, 1.65, f"critical difference {found.critical:.1f}", fontsize=7, ha="center")
        for place, (arm, rank) in enumerate(found.ranks.items()):
            ours = arm == views_scores.OURS
            colour = figures.COLOURS[1] if ours else "black"
            axis.plot([rank, rank], [0.9, -place - 0.5], color=colour, linewidth=0.6, alpha=0.6)
            axis.plot([rank], [0.9], "o", color=colour, markersize=3)
            right = rank > (count + 1) / 2
            axis.text(rank + (-0.1 if right else 0.1), -place - 0.5, f"{arm} {rank:.1f}", fontsize=7,
                      ha="right" if right else "left", va="center", color=colour)  # fmt: skip
        bars = [group for group in found.groups if len(group) > 1]
        for place, group in enumerate(bars):
            height = 0.8 - 0.6 * (place + 1) / (len(bars) + 1)
            ends = [found.ranks[group[0]] - 0.05, found.ranks[group[-1]] + 0.05]
            axis.plot(ends, [height, height], color="black", linewidth=2)
        axis.set_yticks([])
        axis.xaxis.tick_top()
        for side in ("left", "right", "bottom"):
            axis.spines[side].set_visible(False)
    return figures.save(figure, path)


def heat_map(every: Mapping[str, Any], path: Path) -> list[Path]:
    """Arms against data sets; the colour is the distance from the best of the column, in points."""
    shown = [name for name in PICTURED if every[name]]
    if not shown:
        return []
    most = max(len(every[name]) for name in shown)
    figure, axes = figures.panels(len(shown), width=5.6 * len(shown), height=1.6 + 0.27 * most)
    for axis, name in zip(axes, shown):
        means = {arm: by for arm, by in views_scores.means(every[name]).items() if not views_scores.is_control(arm)}
        sets = list(dict.fromkeys(data for by in means.values() for data in by))
        best = {data: max(by[data] for arm, by in means.items() if data in by and arm != "supervised") for data in sets}
        grid = [[100 * (by[d] - best[d]) if d in by else float("nan") for d in sets] for by in means.values()]
        image = axis.imshow(grid, cmap="cividis", vmin=-20, vmax=0, aspect="auto")
        for i, by in enumerate(means.values()):
            for j, data in enumerate(sets):
                if data in by:
                    colour = "black" if grid[i][j] > -10 else "white"
                    axis.text(j, i, f"{100 * by[data]:.0f}", ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(sets)), sets, rotation=60, fontsize=7, ha="right")
        axis.set_yticks(range(len(means)), list(means), fontsize=7)
        axis.set_title(PICTURED[name], fontsize=9)
    figure.colorbar(image, ax=list(axes), shrink=0.8, label="points below the best without labels")
    return figures.save(figure, path)


def absent_curves(tests: list[Result], path: Path) -> list[Path]:
    """Probe and retrieval against the share of the test's entries that is absent, mean over the data sets."""
    found = {name: views_scores.absent_curves(tests, name) for name in ("linear", "recall_rest")}
    if not any(found.values()):
        return []
    figure, axes = figures.panels(2, width=9.0, height=3.6)
    titles = {"linear": "linear probe, %", "recall_rest": "found from the other views, %"}
    for axis, (name, curves) in zip(axes, found.items()):
        for place, arm in enumerate(SHOWN):
            if arm in curves:
                shares = sorted(curves[arm], key=float)
                axis.plot([100 * float(s) for s in shares], [100 * curves[arm][s] for s in shares], label=arm,
                          color=figures.COLOURS[place], marker=figures.MARKERS[place], markersize=4)  # fmt: skip
        axis.set(xlabel="entries absent in testing, %", ylabel=titles[name])
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize=7)
    return figures.save(figure, path)


def front(results: list[Result], path: Path) -> list[Path]:
    """Probe against retrieval for every setting of the grids, on validation rows, mean over the data sets."""
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in results:
        labels, found = row["labels"], row["metrics"]
        if labels["stage"] == "grid" and views_scores.BATCH not in labels and "linear_mean" in found:
            setting = views_scores.setting({name: value for name, value in labels.items() if "." in name})
            points.setdefault(labels["arm"], {}).setdefault(setting, []).append((found["linear_mean"], found["recall"]))
    most = max((len(sets) for by in points.values() for sets in by.values()), default=0)
    lines = {
        arm: {s: sets for s, sets in by.items() if len(sets) == most}
        for arm, by in points.items()
        if not views_scores.is_control(arm)
    }
    lines = {arm: by for arm, by in lines.items() if by}
    if not lines:
        return []
    figure, (axis,) = figures.panels(1, width=6.5, height=4.5)
    for place, (arm, by) in enumerate(lines.items()):
        settings = sorted(by, key=_place)
        xs = [100 * statistics.fmean(x for x, _ in by[s]) for s in settings]
        ys = [100 * statistics.fmean(y for _, y in by[s]) for s in settings]
        style = "-" if place < len(figures.COLOURS) else "--"
        colour, marker = (seq[place % len(seq)] for seq in (figures.COLOURS, figures.MARKERS))
        axis.plot(xs, ys, label=arm, color=colour, marker=marker, markersize=4, linewidth=1, linestyle=style)
        axis.annotate(settings[0], (xs[0], ys[0]), fontsize=6)
    axis.set(xlabel="linear probe, % (validation)", ylabel="right object found first, % (validation)")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=7, ncols=2)
    return figures.save(figure, path)


def _place(setting: str) -> tuple[bool, list[float]]:
    """By value; those that are read out after linear CCA last."""
    return "canonical" in setting, [float(value) for value in setting.removesuffix(" canonical").split(", ")]


def by_number(tests: list[Result], path: Path) -> list[Path]:
    """Probe and retrieval on the digits against the number of views that training and testing have; returns the PNG."""
    found = {name: views_scores.by_number(tests, name) for name in BY_NUMBER}
    if not any(found.values()):
        return []
    figure, axes = figures.panels(len(found), width=4.0 * len(found), height=3.4)
    for axis, (name, curves) in zip(axes, found.items()):
        for place, arm in enumerate(SHOWN):
            if arm in curves:
                numbers = sorted(curves[arm])
                values = [[100 * value for value in curves[arm][k]] for k in numbers]
                spread = [statistics.stdev(part) if len(part) > 1 else 0.0 for part in values]
                axis.errorbar(numbers, [statistics.fmean(part) for part in values], spread, label=arm, capsize=2,
                              color=figures.COLOURS[place], marker=figures.MARKERS[place], markersize=4)  # fmt: skip
        axis.set(xlabel="views k", title=f"{BY_NUMBER[name]}, %")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize=7)
    return _shown(figures.save(figure, path))


def _shown(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".png"]
