"""Objects that a run has not seen, embedded by its network: a table, files of arrays, or both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from m3g import _checks
from m3g.data.storage.readers import file_names, read_array
from m3g.evaluation import mean_of_views
from m3g.training.runs.export import load
from m3g.training.runs.trained import Embeddings, TrainedNet


def embed_new(
    run: str | os.PathLike[str],
    *,
    table: str | None = None,
    views: Sequence[str] | None = None,
    trust: bool = False,
) -> tuple[Embeddings, list[str]]:
    """The embeddings of new objects, known in any of the views, and the names of all views of the run.

    Args:
        run: the folder of a finished run.
        table: a table with some of the columns that the run was trained on.
        views: files of arrays, `NAME=FILE` or named as the views are, or one per view in their order.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
    """
    net = load(run, trust=trust)
    parts = [] if table is None else [net.embed(table)]
    if views is not None:
        parts.append(net.embed(_arrays(net, views)))
    sizes = [part.mask.shape[1] for part in parts]
    if len(set(sizes)) > 1:
        raise ValueError(f"--views must have as many rows as --table, {sizes[0]}, got {sizes[1]}.")
    if len(parts) == 2 and bool((parts[0].mask & parts[1].mask).any()):
        raise ValueError("--views must be views that --table does not have, got one that it has: leave one out.")
    embeddings = torch.stack([part.views for part in parts]).sum(0)  # absent ones are zero
    mask = torch.stack([part.mask for part in parts]).any(0)
    return Embeddings(embeddings, mean_of_views(embeddings, mask), mask), net.view_names


def _arrays(net: TrainedNet, views: Sequence[str]) -> dict[str, Any]:
    names = net.view_names
    pairs = [word.partition("=") for word in views]
    if all(sign for _, sign, _ in pairs):
        found = {_checks.one_of("view of --views", name, names): file for name, _, file in pairs}
    elif any(sign for _, sign, _ in pairs):
        raise ValueError("--views must be NAME=FILE for all files or for none, got both.")
    else:
        stems = file_names(views)
        if not set(stems) <= set(names):
            if len(views) != len(names):
                raise ValueError(
                    f"--views must be NAME=FILE for some of the views {', '.join(names)}, or {len(names)} files in "
                    f"their order, got {len(views)} of other names."
                )
            stems = names
        found = dict(zip(stems, views))
    if len(found) < len(views):
        raise ValueError(f"--views must be one file per view, got {len(views)} for {len(found)}.")
    return {name: read_array(file, name="--views") for name, file in found.items()}
