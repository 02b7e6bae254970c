"""Map of the embeddings: all views of some of the objects, with a legend or class names, and lines between views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.evaluation.plots import save

if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes

Colour = tuple[float, ...]
MAX_LEGEND_ENTRIES = 20  # maximum number of classes in the legend; if there are more, they are labelled in the map
MAX_LABELS = 80  # maximum number of labels in the map, of the most frequent classes
MAX_LABEL_LENGTH = 18  # maximum number of characters of a label
LINKED = 12  # number of objects whose views are connected


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
    """Plot the embeddings of all views (k, n, d) on one map: together on the left, view by view on the right.

    The map is a t-SNE of the unit vectors with a fixed seed. Beyond `limit` points, an evenly spaced subset of the rows
    is shown. Colours show the class, or the view if there are no labels. Up to 20 classes have a legend; if there are
    more, the 80 most frequent are labelled in the map. Lines connect the views of up to twelve objects.
    """
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    mask = _checks.presence(mask, embeddings)
    k, n = embeddings.shape[:2]
    rows = torch.linspace(0, n - 1, min(n, max(limit // k, 1))).long()
    shown = torch.ones(k, len(rows), dtype=torch.bool) if mask is None else mask[:, rows].cpu()
    places = tsne(normalize(embeddings[:, rows].double(), dim=-1).cpu()[shown])
    view_of = torch.arange(k)[:, None].expand(k, len(rows))[shown]
    row_of = torch.arange(len(rows)).expand(k, len(rows))[shown]
    views = list(view_names) if view_names is not None else [f"view {l}" for l in range(k)]
    if labels is None:
        code, names, hue = view_of, views, "view"
    else:
        kinds, codes = torch.unique(labels.cpu(), return_inverse=True)
        hue = "class"
        code = codes[rows].expand(k, len(rows))[shown]
        names = [str(int(kind)) if class_names is None else class_names[int(kind)] for kind in kinds]
    palette = colours(len(names))
    colour = [palette[c] for c in code.tolist()]

    columns = max(1, math.ceil(k / 2)) if k <= 8 else math.ceil(k**0.5)
    lines = math.ceil(k / columns)
    side = 5.4 if len(names) <= MAX_LEGEND_ENTRIES else 7.5  # labels in the map need space
    figure_class = _checks.extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(side * (1 + columns / lines), side + 1.0), layout="constrained", dpi=130)
    figure.suptitle(
        f"{title}\nt-SNE: similar embeddings are close; colour is the {hue}; lines connect the views of some objects",
        fontsize=12,
    )
    grid = figure.add_gridspec(lines, columns + lines)
    overview = figure.add_subplot(grid[:, :lines])
    # In random order, so that no class hides another.
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0)).tolist()
    overview.scatter(*places[order].T, s=9, alpha=0.75, color=[colour[i] for i in order], linewidths=0)
    _link(overview, places, row_of, len(rows))
    overview.set_title("all views", fontsize=11)
    for l, name in enumerate(views):
        axis = figure.add_subplot(grid[l // columns, lines + l % columns], sharex=overview, sharey=overview)
        chosen = (view_of == l).nonzero().flatten().tolist()
        axis.scatter(*places.T, s=2, color="0.88", linewidths=0)
        axis.scatter(*places[chosen].T, s=6, alpha=0.9, color=[colour[i] for i in chosen], linewidths=0)
        axis.set_title(name, fontsize=10)
    for axis in figure.axes:
        axis.set(xticks=[], yticks=[], box_aspect=1)  # the axes of a t-SNE have no unit
        axis.spines[:].set_color("0.8")
    if len(names) <= MAX_LEGEND_ENTRIES:
        dots = [overview.scatter([], [], s=40, color=[tone], linewidths=0) for tone in palette]
        figure.legend(dots, names, loc="outside lower center", ncols=min(len(names), 10), frameon=False)
    else:
        _name_classes(overview, places, code, names, palette)
    return save(figure, path)


def _link(axis: Axes, places: Tensor, row_of: Tensor, rows: int) -> None:
    """Connect the views of some objects by lines."""
    for row in torch.linspace(0, rows - 1, min(rows, LINKED)).long().unique():
        points = places[row_of == row]
        if len(points) < 2:
            continue
        middle = points.median(0).values  # robust to a single distant view
        for place in points:
            axis.plot(*torch.stack([middle, place]).T, color="0.15", linewidth=0.9, alpha=0.8)
        axis.scatter(points[:, 0], points[:, 1], s=16, facecolors="none", edgecolors="0.15", linewidths=0.9)


def _name_classes(axis: Axes, places: Tensor, code: Tensor, names: Sequence[str], palette: Sequence[Colour]) -> None:
    """Label the most frequent classes at one of their points, moved up or down to avoid other labels."""
    axis.margins(x=0.12)
    effects = _checks.extra("matplotlib.patheffects", "plot")
    size = 8.0 if len(names) <= 40 else 6.5
    low, high = places.min(0).values, places.max(0).values
    # The axis is about 7 inches wide, and the width of a letter is about 0.6 times its height.
    height = float(size / 72 / 7 * (high[1] - low[1])) * 1.3
    letter = float(0.6 * size / 72 / 7 * (high[0] - low[0]))
    taken: list[tuple[float, float, float]] = []
    for kind in code.bincount(minlength=len(names)).argsort(descending=True, stable=True)[:MAX_LABELS].tolist():
        points = places[code == kind]
        if len(points) == 0:
            continue
        middle = points.median(0).values
        # The nearest point, because the median itself may lie between the clusters of a class.
        x, y = points[(points - middle).square().sum(1).argmin()].tolist()
        name = names[kind] if len(names[kind]) <= MAX_LABEL_LENGTH else names[kind][: MAX_LABEL_LENGTH - 1] + "…"
        half = letter * len(name) / 2
        tries = [y + sign * (step + 0.9) * height for step in range(12) for sign in (1, -1)]  # above or below its point
        free = (
            at for at in tries
            if all(abs(at - other) >= height or abs(x - centre) >= half + width for centre, other, width in taken)
        )  # fmt: skip
        y = next(free, y)
        taken.append((x, y, half))
        text = axis.text(x, y, name, fontsize=size, ha="center", va="center", color=palette[kind], weight="bold")
        text.set_path_effects([effects.withStroke(linewidth=2.2, foreground="white")])


def tsne(points: Tensor) -> Tensor:
    """Return t-SNE positions in the plane (n, 2), initialised with the first two principal components."""
    _checks.extra("sklearn", "train")
    from sklearn.manifold import TSNE

    centred = points - points.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    start = torch.nn.functional.pad(centred @ directions[:2].T, (0, max(0, 2 - len(directions))))
    start = 1e-4 * start / start[:, 0].std().clamp_min(1e-12)  # collapsed embeddings have no extent
    model = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), init=start.float().numpy(), random_state=0)
    return torch.from_numpy(model.fit_transform(points.float().numpy()))


def colours(count: int) -> list[Colour]:
    """Return `count` different colours."""
    matplotlib = _checks.extra("matplotlib", "plot")
    if count <= MAX_LEGEND_ENTRIES:
        return [matplotlib.colormaps["tab10" if count <= 10 else "tab20"](c) for c in range(count)]
    hsv_to_rgb = _checks.extra("matplotlib.colors", "plot").hsv_to_rgb
    # Steps of the golden angle separate neighbours in the list; three intensities separate close hues.
    return [
        tuple(hsv_to_rgb(((0.618034 * c) % 1, (0.9, 0.6, 0.85)[c % 3], (0.75, 0.7, 0.45)[c % 3]))) for c in range(count)
    ]
