"""The pictures of a report, as PNG: curves over training, matrices between views, a map of the points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks

MOST_NAMES = 20  # more classes than this get no legend
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def _figure(columns: int, *, width: float = 5.5, height: float = 4.4) -> tuple[Any, list[Any]]:
    """A figure with one row of axes; matplotlib's objects need no display and keep no global state."""
    figure_class = _checks.extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(width * columns, height), layout="constrained", dpi=130)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    for text in figure.findobj(_checks.extra("matplotlib.text", "plot").Text):
        text.set_parse_math(False)  # a user's names are words: a $ in them does not start a formula
    figure.savefig(path)
    return path


def plot_curves(panels: Mapping[str, Series], path: str | Path, *, x_label: str = "step") -> Path:
    """One panel per title, in each one line per name: `{"loss": {"train": (steps, values)}, …}`."""
    if not panels:
        raise ValueError("panels must have at least one panel of curves, got none.")
    figure, axes = _figure(len(panels))
    for axis, (title, series) in zip(axes, panels.items()):
        for name, (x, y) in series.items():
            # A line through a single point is not visible.
            axis.plot(x, y, label=name, linewidth=1.8, marker="o" if len(x) < 30 else None, markersize=3.5)
        axis.set(title=title, xlabel=x_label)
        axis.xaxis.get_major_locator().set_params(integer=True)  # steps, epochs, numbers of views
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if series:
            axis.legend(frameon=False)
    return _save(figure, path)


def plot_matrix(
    matrix: Tensor,
    names: Sequence[str],
    path: str | Path,
    *,
    title: str,
    rows: str = "query view",
    columns: str = "searched view",
    percent: bool = True,
) -> Path:
    """A matrix (k, k) between views with its values written in; shares are shown in percent."""
    k = len(names)
    if tuple(matrix.shape) != (k, k):
        raise ValueError(f"matrix must have shape ({k}, {k}) for {k} names, got {_checks.shape_of(matrix)}.")
    values = matrix.double().cpu().numpy() * (100 if percent else 1)
    size = max(4.6, 1.7 + 0.75 * k)
    figure, (axis,) = _figure(1, width=size + 0.8, height=size)
    low, high = (0.0, 100.0) if percent else (float(values.min()), max(float(values.max()), values.min() + 1e-9))
    image = axis.imshow(values, cmap="viridis", vmin=low, vmax=high)
    axis.set_xticks(range(k), names, rotation=40, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(k), names)
    axis.set(title=title, xlabel=columns, ylabel=rows)
    for l in range(k):
        for m in range(k):
            dark = (values[l, m] - low) / (high - low) < 0.6
            text = f"{values[l, m]:.0f}" if percent or values[l, m] >= 10 else f"{values[l, m]:.1f}"
            axis.text(m, l, text, ha="center", va="center", color="white" if dark else "black")
    figure.colorbar(image, ax=axis, label="%" if percent else None, shrink=0.85)
    return _save(figure, path)


def plot_map(
    embeddings: Tensor,
    path: str | Path,
    *,
    labels: Tensor | None = None,
    class_names: Sequence[str] | None = None,
    view_names: Sequence[str] | None = None,
    mask: Tensor | None = None,
    limit: int = 1500,
    title: str = "Embeddings",
) -> Path:
    """All views' embeddings (k, n, d) on one map: together on the left, view by view on the right.

    The map is t-SNE of the unit vectors, with a fixed seed; of more than `limit` of them, points evenly spaced
    over the rows are shown. With labels the colour tells the class, without them the view.
    """
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    mask = _checks.presence(mask, embeddings)
    k, n = embeddings.shape[:2]
    rows = torch.linspace(0, n - 1, min(n, max(limit // k, 1))).long()
    shown = torch.ones(k, len(rows), dtype=torch.bool) if mask is None else mask[:, rows].cpu()
    places = tsne(normalize(embeddings[:, rows].double(), dim=-1).cpu()[shown])
    view_of = torch.arange(k)[:, None].expand(k, len(rows))[shown]
    views = list(view_names) if view_names is not None else [f"view {l}" for l in range(k)]
    if labels is None:
        code, names, what = view_of, views, "view"
    else:
        kinds, codes = torch.unique(labels.cpu(), return_inverse=True)
        what = "class"
        code = codes[rows].expand(k, len(rows))[shown]
        names = [str(int(kind)) if class_names is None else class_names[int(kind)] for kind in kinds]
    palette = _palette(len(names))
    colour = [palette[c] for c in code.tolist()]

    columns = max(1, math.ceil(k / 2)) if k <= 8 else math.ceil(k**0.5)
    lines = math.ceil(k / columns)
    side = 5.4
    figure_class = _checks.extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(side * (1 + columns / lines), side + 0.9), layout="constrained", dpi=130)
    figure.suptitle(f"{title}\nt-SNE: what the network finds alike lies close; colour is the {what}", fontsize=12)
    grid = figure.add_gridspec(lines, columns + lines)
    whole = figure.add_subplot(grid[:, :lines])
    # In random order, so that no class hides another because it comes later.
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0)).tolist()
    whole.scatter(*places[order].T, s=9, alpha=0.75, color=[colour[i] for i in order], linewidths=0)
    whole.set_title("all views", fontsize=11)
    for l, name in enumerate(views):
        axis = figure.add_subplot(grid[l // columns, lines + l % columns], sharex=whole, sharey=whole)
        chosen = (view_of == l).nonzero().flatten().tolist()
        axis.scatter(*places.T, s=2, color="0.88", linewidths=0)
        axis.scatter(*places[chosen].T, s=6, alpha=0.9, color=[colour[i] for i in chosen], linewidths=0)
        axis.set_title(name, fontsize=10)
    for axis in figure.axes:
        axis.set(xticks=[], yticks=[], box_aspect=1)  # the axes of such a map have no unit
        axis.spines[:].set_color("0.8")
    if labels is not None and len(names) <= MOST_NAMES:
        dots = [whole.scatter([], [], s=40, color=[tone], linewidths=0) for tone in palette]
        figure.legend(dots, names, loc="outside lower center", ncols=min(len(names), 10), frameon=False)
    return _save(figure, path)


def tsne(points: Tensor) -> Tensor:
    """Places in the plane (n, 2), from the first two principal components on."""
    _checks.extra("sklearn", "train")
    from sklearn.manifold import TSNE

    centred = points - points.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    start = torch.nn.functional.pad(centred @ directions[:2].T, (0, max(0, 2 - len(directions))))
    start = 1e-4 * start / start[:, 0].std().clamp_min(1e-12)  # collapsed embeddings have no extent
    machine = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init=start.float().numpy(), random_state=0)
    return torch.from_numpy(machine.fit_transform(points.float().numpy()))


def _palette(count: int) -> list[Any]:
    """As many colours as there are names, told apart as well as their number allows."""
    colormaps = _checks.extra("matplotlib", "plot").colormaps
    if count > MOST_NAMES:
        return [colormaps["turbo"](c / (count - 1)) for c in range(count)]
    return [colormaps["tab10" if count <= 10 else "tab20"](c) for c in range(count)]
