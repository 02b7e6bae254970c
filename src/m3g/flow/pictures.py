"""Plots of a gradient flow: colours are objects, markers are views, and the points of a tuple are joined by lines."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from m3g import _checks
from m3g.flow.descend import Moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, which are distinguishable with colour vision deficiency, with grey instead of black.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7F7F7F")
MARKERS = "os^DPXvp*h"
INK, PAPER, WRONG = "#222222", "#ffffff", "#444444"
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
NAMES = {"m3g": "M3G", "infonce-pwe": "pairwise InfoNCE"}
Flows = Mapping[str, Sequence[Moment]]
# View direction of the sphere: rotation about the vertical axis, then tilt towards the viewer.
TURN, TILT = 0.5, 0.35


def title(name: str) -> str:
    """Return the displayed name of a loss."""
    return NAMES.get(name, name)


def triptych(flows: Flows, indices: Sequence[int]) -> Figure:
    """Return a figure with one column for each of three moments, and two rows for each loss: true and best matching."""
    rows = 2 * len(flows)
    figure = _figure(3 * 3.1 + 0.9, rows * 2.9 + 1.2 + 0.35 * len(flows))
    grid = figure.subplots(rows, 3, squeeze=False)
    bottom, top = 0.62 / figure.get_figheight(), 1 - 0.55 / figure.get_figheight()
    figure.subplots_adjust(left=0.075, right=0.99, bottom=bottom, top=top, wspace=0.05, hspace=0.16)
    for i, (name, moments) in enumerate(flows.items()):
        frame = _extent(moments)
        for column, index in enumerate(indices):
            moment = moments[index]
            above, below = grid[2 * i][column], grid[2 * i + 1][column]
            _cliques(above, moment, frame, best=False)
            _cliques(below, moment, frame, best=True)
            if i == 0:
                above.set_title(f"step {moment.step}", fontsize=12, color=INK)
            below.set_xlabel(_numbers(name, moment), fontsize=10.5, color=INK, labelpad=6)
        for row, text in ((2 * i, "true matching"), (2 * i + 1, "best polymatching")):
            grid[row][0].set_ylabel(f"{title(name)}\n{text}", fontsize=11, color=INK)
    _legend(figure, next(iter(flows.values()))[0])
    return figure


def save_still(figure: Figure, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def animate(flows: Flows, indices: Sequence[int], folder: Path, *, seconds: float = 6.0) -> list[Path]:
    """Write `flow.gif` and, if ffmpeg is installed, `flow.mp4`; return their paths.

    The first and the last moment are shown for longer than the others.
    """
    images = frames(flows, indices)
    frame_ms = max(20, round(1000 * seconds / len(images) / 10) * 10)
    image_class = _checks.extra("PIL.Image", "plot")
    # All frames have one palette, from the first and the last frame, so that static parts are stored once.
    first_and_last = image_class.fromarray(np.concatenate([images[0], images[-1]]))
    palette = first_and_last.quantize(96, dither=image_class.Dither.NONE)
    tones = palette.getpalette() or []
    tones[:3] = (255, 255, 255)  # the background, the most frequent tone, must stay white
    palette.putpalette(tones)
    pictures = [image_class.fromarray(i).quantize(palette=palette, dither=image_class.Dither.NONE) for i in images]
    path = folder / "flow.gif"
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=[1200, *[frame_ms] * (len(images) - 2), 2500],
        loop=0,
        optimize=True,
    )
    return [path, *_video(images, folder / "flow.mp4", frame_ms)]


def frames(flows: Flows, indices: Sequence[int]) -> list[np.ndarray]:
    """Return images (height, width, 3) of these moments: matchings above curves of loss, gap and matched objects."""
    canvas_class = _checks.extra("matplotlib.backends.backend_agg", "plot").FigureCanvasAgg
    columns = 2 * len(flows)
    figure = _figure(2.75 * columns if columns > 2 else 7.2, 6.0 if columns == 2 else 5.4, dpi=90)
    canvas = canvas_class(figure)
    grid = figure.add_gridspec(
        2, 1, height_ratios=(3.1, 1.0), left=0.075, right=0.985, bottom=0.15, top=0.86, hspace=0.3
    )
    if columns > 2:
        grid.update(left=0.055)
    upper = grid[0].subgridspec(1, columns, wspace=0.06)
    lower = grid[1].subgridspec(1, 3, wspace=0.32)
    panels = [figure.add_subplot(upper[0, c]) for c in range(columns)]
    curves = [figure.add_subplot(lower[0, c]) for c in range(3)]
    dots = _curves(curves, flows)
    headline = figure.text(0.5, 0.965, "", ha="center", va="center", fontsize=12, color=INK)
    _legend(figure, next(iter(flows.values()))[0])
    extents = {name: _extent(moments) for name, moments in flows.items()}
    images = []
    for index in indices:
        for i, (name, moments) in enumerate(flows.items()):
            for best, axis in zip((False, True), panels[2 * i : 2 * i + 2]):
                axis.clear()
                _cliques(axis, moments[index], extents[name], best=best)
                matching = "best polymatching" if best else "true matching"
                axis.set_title(f"{title(name)}\n{matching}", fontsize=10, color=INK)
            for dot, line in zip(dots[name], _lines(moments, relative=len(flows) > 1)):
                dot.set_data([moments[index].step], [line[index]])
        headline.set_text(f"step {next(iter(flows.values()))[index].step}")
        canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return images


def _figure(width: float, height: float, *, dpi: int = 130) -> Figure:
    figure: Figure = _checks.extra("matplotlib.figure", "plot").Figure(
        figsize=(width, height), dpi=dpi, facecolor=PAPER
    )
    return figure


def _numbers(name: str, moment: Moment) -> str:
    n = moment.points.shape[1]
    gap = f"gap {moment.gap:.3f}"
    parts = [gap] if name == "m3g" else [f"loss {moment.loss:.3f}", gap]
    return "    ".join([*parts, f"matched {round(n * moment.matched)} of {n}"])


def _lines(moments: Sequence[Moment], *, relative: bool) -> tuple[list[float], list[float], list[float]]:
    """Return the loss, the gap and the percentage of matched objects of every moment.

    With `relative`, losses are divided by the absolute value of the initial loss.
    """
    unit = max(abs(moments[0].loss), 1e-12) if relative else 1.0
    return [m.loss / unit for m in moments], [m.gap for m in moments], [100 * m.matched for m in moments]


def _curves(axes: Sequence[Axes], flows: Flows) -> dict[str, list[Line2D]]:
    """Plot the curves of all steps; return, by loss, the dots that mark the step of a frame."""
    dots: dict[str, list[Line2D]] = {name: [] for name in flows}
    for column, (axis, text) in enumerate(zip(axes, ("loss", "gap", "matched, %"))):
        lowest = 0.0
        for colour, (name, moments) in zip(LINES, flows.items()):
            values = _lines(moments, relative=len(flows) > 1)[column]
            lowest = min(lowest, *values)
            steps = [moment.step for moment in moments]
            axis.plot(steps, values, color=colour, linewidth=1.6, label=title(name))
            dots[name] += axis.plot([], [], "o", color=colour, markersize=6, markeredgecolor=PAPER)
        relative = column == 0 and len(flows) > 1
        axis.set_title("loss / loss at the start" if relative else text, fontsize=9.5, color=INK)
        axis.set_xlabel("step", fontsize=8.5, color=INK, labelpad=1)
        axis.tick_params(labelsize=8, colors=INK, length=2.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        axis.set_ylim(*((-6, 106) if column == 2 else (1.05 * lowest, None)))
        if len(flows) > 1 and column == 1:
            axis.legend(frameon=False, fontsize=8)
    return dots


def _extent(moments: Sequence[Moment]) -> tuple[float, float, float, float] | None:
    """Return the square that contains all moments, with a margin; None on the sphere, whose extent is fixed."""
    points = np.concatenate([moment.points.numpy().reshape(-1, moment.points.shape[-1]) for moment in moments])
    if points.shape[1] == 3:
        return None
    low, high = points.min(0), points.max(0)
    middle, half = (low + high) / 2, 0.56 * float((high - low).max()) + 1e-6
    return middle[0] - half, middle[0] + half, middle[1] - half, middle[1] + half


def _cliques(axis: Axes, moment: Moment, frame: tuple[float, ...] | None, *, best: bool) -> None:
    """Draw the points and the tuples of a matching: true tuples in the colour of the object, others grey and dashed."""
    points = moment.points.numpy()
    k, n = points.shape[:2]
    flat, depth = (points, np.ones((k, n))) if frame is not None else _project(points)
    tuples = moment.tuples.numpy() if best else np.repeat(np.arange(n)[:, None], k, axis=1)
    for rows in tuples:
        correct = bool((rows == rows[0]).all())
        colour = _colour(int(rows[0]), n) if correct else WRONG
        corners = points[np.arange(k), rows]
        _clique(axis, corners, colour, dashed=not correct, sphere=frame is None)
    for l in range(k):
        for i in range(n):
            axis.plot(
                *flat[l, i], MARKERS[l], color=_colour(i, n), markersize=9 if n <= 8 else 6.5, markeredgecolor=INK,
                markeredgewidth=0.8, alpha=1.0 if depth[l, i] > 0 else 0.35, zorder=4,
            )  # fmt: skip
    axis.set_aspect("equal")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#bbbbbb")
    if frame is None:
        turn = np.linspace(0, 2 * np.pi, 200)
        axis.plot(np.cos(turn), np.sin(turn), color="#bbbbbb", linewidth=1, zorder=0)
        axis.spines[:].set_visible(False)
        frame = (-1.12, 1.12, -1.12, 1.12)
    axis.set(xlim=frame[:2], ylim=frame[2:])


def _clique(axis: Axes, corners: np.ndarray, colour: str, *, dashed: bool, sphere: bool) -> None:
    k = len(corners)
    if not sphere and k > 2:
        around = corners - corners.mean(0)
        order = np.argsort(np.arctan2(around[:, 1], around[:, 0]))
        axis.fill(*corners[order].T, color=colour, alpha=0.1 if dashed else 0.25, linewidth=0, zorder=1)
    for a in range(k):
        for b in range(a + 1, k):
            weight = np.linspace(0, 1, 24)[:, None]
            line = (1 - weight) * corners[a] + weight * corners[b]
            style = "--" if dashed else "-"
            draw = partial(axis.plot, color=colour, linewidth=1.4 if dashed else 2.0, linestyle=style, zorder=2)
            if not sphere:
                draw(*line.T)
                continue
            # Along the great circle, pale on the far side of the sphere.
            flat, depth = _project(line / np.maximum(np.linalg.norm(line, axis=1, keepdims=True), 1e-9))
            for shown, alpha in ((depth >= 0, 1.0), (depth < 0, 0.35)):
                draw(*np.where(shown[:, None], flat, np.nan).T, alpha=alpha)


def _project(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the projection (..., 2) of points (..., 3) of the sphere and their depth, negative on the far side."""
    x, y, z = np.moveaxis(points, -1, 0)
    x, z = np.cos(TURN) * x + np.sin(TURN) * z, np.cos(TURN) * z - np.sin(TURN) * x
    y, z = np.cos(TILT) * y - np.sin(TILT) * z, np.cos(TILT) * z + np.sin(TILT) * y
    return np.stack([x, y], axis=-1), z


def _colour(i: int, n: int) -> str:
    if n <= len(COLOURS):
        return COLOURS[i]
    matplotlib = _checks.extra("matplotlib", "plot")
    return str(matplotlib.colors.to_hex(matplotlib.colormaps["turbo"](0.05 + 0.9 * i / (n - 1))))


def _legend(figure: Figure, moment: Moment) -> None:
    lines = _checks.extra("matplotlib.lines", "plot").Line2D
    k, n = moment.points.shape[:2]
    style = {"linestyle": "", "markerfacecolor": PAPER, "markeredgecolor": INK, "markersize": 7}
    shapes = [lines([], [], marker=MARKERS[l], label=f"view {l + 1}", **style) for l in range(k)]
    wrong = lines([], [], color=WRONG, linestyle="--", linewidth=1.4, label="joins different objects")
    right = lines([], [], color=_colour(0, n), linewidth=2, label="joins one object (its colour)")
    figure.legend(
        handles=[*shapes, right, wrong], loc="lower center", ncols=k + 2 if k <= 4 else 6, frameon=False, fontsize=8.5,
        handletextpad=0.5, columnspacing=1.3,
    )  # fmt: skip


def _video(images: Sequence[np.ndarray], path: Path, frame_ms: int) -> list[Path]:
    program = shutil.which("ffmpeg")
    if program is None:
        return []
    height, width = images[0].shape[0] // 2 * 2, images[0].shape[1] // 2 * 2  # the codec requires even sizes
    rate = 1000 / frame_ms
    shown = [images[0]] * round(1.2 * rate) + list(images) + [images[-1]] * round(2.5 * rate)
    command = [
        program, "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
        "-r", f"{rate:.3f}", "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path),
    ]  # fmt: skip
    content = b"".join(np.ascontiguousarray(image[:height, :width]).tobytes() for image in shown)
    completed = subprocess.run(command, input=content, capture_output=True, check=False)
    if completed.returncode != 0:
        reason = completed.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(
            f"ffmpeg must be able to write {path}, but it failed: {reason[-1] if reason else 'no error message'}."
        )
    return [path]
