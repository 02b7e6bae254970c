"""The pictures of a report, as PNG: curves over training, matrices between views, a map of the points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks

Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def _figure(columns: int, *, width: float = 5.5, height: float = 4.4) -> tuple[Any, list[Any]]:
    """A figure with one row of axes; matplotlib's objects need no display and keep no global state."""
    figure_class = _checks.extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(width * columns, height), layout="constrained", dpi=130)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def plot_curves(panels: Mapping[str, Series], path: str | Path, *, x_label: str = "step") -> Path:
    """One panel per title, in each one line per name: `{"loss": {"train": (steps, values)}, …}`."""
    if not panels:
        raise ValueError("panels takes at least one panel of curves, got none.")
    figure, axes = _figure(len(panels))
    for axis, (title, series) in zip(axes, panels.items()):
        for name, (x, y) in series.items():
            # A single point would be an invisible line.
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
        raise ValueError(f"matrix takes shape ({k}, {k}) for {k} names, got {_checks.shape_of(matrix)}.")
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
    method: str = "pca",
    limit: int = 1000,
    title: str = "Embeddings",
) -> Path:
    """All views' embeddings (k, n, d) in two dimensions, coloured by view and, with labels, by class.

    `method` is `"pca"` (first two principal components) or `"tsne"`. At most `limit` points, evenly spaced.
    """
    _checks.one_of("method", method, ("pca", "tsne"))
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    mask = _checks.presence(mask, embeddings)
    k, n = embeddings.shape[:2]
    rows = torch.linspace(0, n - 1, min(n, limit)).long()
    points = normalize(embeddings[:, rows].double(), dim=-1).cpu()
    shown = torch.ones(k, len(rows), dtype=torch.bool) if mask is None else mask[:, rows].cpu()
    places = _project(points[shown], method)
    view_of = torch.arange(k)[:, None].expand(k, len(rows))[shown]
    names = list(view_names) if view_names is not None else [f"view {l}" for l in range(k)]
    figure, axes = _figure(1 if labels is None else 2, width=6.4, height=5.2)
    _scatter(axes[-1], places, view_of, names, "colour: view")
    if labels is not None:
        kinds, codes = torch.unique(labels.cpu(), return_inverse=True)
        class_of = codes[rows].expand(k, len(rows))[shown]
        known = (
            class_names if class_names is not None else [str(int(kind)) for kind in torch.arange(int(kinds.max()) + 1)]
        )
        _scatter(axes[0], places, class_of, [known[int(kind)] for kind in kinds], "colour: class")
    for axis in axes:
        unit = "principal component" if method == "pca" else "t-SNE axis"
        axis.set(xlabel=f"{unit} 1", ylabel=f"{unit} 2")
    figure.suptitle(title)
    return _save(figure, path)


def _project(points: Tensor, method: str) -> Tensor:
    if method == "pca":
        centred = points - points.mean(0)
        _, _, directions = torch.linalg.svd(centred, full_matrices=False)
        return centred @ directions[:2].T if len(directions) > 1 else torch.nn.functional.pad(centred, (0, 1))
    _checks.extra("sklearn", "train")
    from sklearn.manifold import TSNE

    found = TSNE(perplexity=min(30, (len(points) - 1) / 3), random_state=0, init="pca").fit_transform(points.numpy())
    return torch.from_numpy(found)


def _scatter(axis: Any, places: Tensor, code: Tensor, names: Sequence[str], title: str) -> None:
    colormaps = _checks.extra("matplotlib", "plot").colormaps
    many = len(names) > 20
    colours = colormaps["turbo" if many else ("tab10" if len(names) <= 10 else "tab20")]
    palette = [colours(c / (len(names) - 1) if many else c) for c in range(len(names))]
    # In random order, so that no class hides another because it comes later.
    order = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    x, y = places[order].T
    axis.scatter(x, y, s=7, alpha=0.6, color=[palette[c] for c in code[order].tolist()], linewidths=0)
    for colour, name in zip(palette, names):
        axis.scatter([], [], s=7, alpha=0.8, color=[colour], label=name, linewidths=0)
    axis.set(title=title)
    axis.spines[["top", "right"]].set_visible(False)
    if many:
        axis.annotate(f"{len(names)} classes", (0.02, 0.98), xycoords="axes fraction", va="top")
    else:
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, markerscale=2.5)
