"""Embeddings of the rows of a run's data."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g import _checks
from m3g.data.splits import Split
from m3g.evaluation import Embedded
from m3g.nets import MultiViewNet
from m3g.training.loop.build import build_data
from m3g.training.runs.export import load
from m3g.training.runs.folder import Run

if TYPE_CHECKING:
    from m3g.data import ViewsData
    from m3g.data.batch import Batch

SPLITS = ("train", "val", "test", "all")


def embed_run(run: str | os.PathLike[str], split: str = "all", *, trust: bool = False) -> Embedded:
    """Embed one split or all splits of a finished run with its network."""
    _checks.one_of("split", split, SPLITS)
    run = Run.of(run)
    config = run.open()
    net, data = load(run, trust=trust, scaled=True), build_data(config, run)
    names = [name for name in data.datasets if split in ("all", name) and data.num_rows(name)]
    if not names:
        raise ValueError(f"split must have at least one row, got none in {split!r}.")
    return Embedded.join([embed(net, data, name) for name in names])


def embed(net: MultiViewNet, data: ViewsData, split: Split, *, most: int | None = None) -> Embedded:
    """Embed at most `most` evenly spaced rows of a split, batch by batch, without dropout."""
    points = embed_batches(net, data.loader(split, most=most))
    names = [split] * len(points.views[0])
    return replace(points, split=names, view_names=data.view_names, class_names=data.class_names)


@torch.no_grad()
def embed_batches(net: MultiViewNet, batches: Iterable[Batch]) -> Embedded:
    """Embed batches of views; if all views share one encoder, a batch may have a single view."""
    first = next(net.parameters())
    device, dtype = first.device, first.dtype  # runs may be in half or double precision
    training = net.training
    net.eval()
    embeddings: list[Tensor] = []
    features: list[list[Tensor]] = []
    labels: list[Tensor] = []
    masks: list[Tensor] = []
    indices: list[Tensor] = []
    try:
        for batch in batches:
            views = [view.to(device, dtype if view.is_floating_point() else None) for view in batch["views"]]
            view_features = net.features(views)
            embeddings.append(net.project(view_features).float().cpu())
            features = features or [[] for _ in view_features]
            for collected, new in zip(features, view_features):
                collected.append(new.float().cpu())
            for values, value in (
                (labels, batch.get("label")), (masks, batch.get("mask")), (indices, batch.get("index")),
            ):  # fmt: skip
                if value is not None:
                    values.append(value)
    finally:
        net.train(training)
    return Embedded(
        embeddings=_join(embeddings, 1),
        features=[_join(collected, 0) for collected in features],
        labels=_join(labels, 0) if labels else None,
        mask=_join(masks, 1) if masks else None,
        index=_join(indices, 0) if indices else None,
    )


def _join(parts: list[Tensor], dim: int) -> Tensor:
    """Concatenate the parts and clear the list, so that they are not stored twice."""
    joined = torch.cat(parts, dim=dim)
    parts.clear()
    return joined
