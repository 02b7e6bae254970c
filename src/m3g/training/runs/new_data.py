"""Embeddings of new objects by the network of a run: from a table, files of arrays, or both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from m3g import _checks
from m3g.data.storage.readers import ArrayFiles, file_names
from m3g.data.tables.new_objects import is_known
from m3g.evaluation import Embedded
from m3g.training.runs.export import load
from m3g.training.runs.trained import TrainedNet


def embed_new(
    run: str | os.PathLike[str],
    *,
    table: str | None = None,
    views: Sequence[str] | None = None,
    trust: bool = False,
) -> Embedded:
    """Embed new objects with any of the views of the run.

    Args:
        run: the folder of a finished run.
        table: a table with some of the columns of the training table.
        views: array files, given as `NAME=FILE`, or named after the views, or one per view in the order of the views.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
    """
    net = load(run, trust=trust)
    parts = [] if table is None else [net.embed(table)]
    if views is not None:
        parts.append(net.embed(_arrays(net, views)))
    sizes = [part.present.shape[1] for part in parts]
    if len(set(sizes)) > 1:
        raise ValueError(f"--views must have as many rows as --table ({sizes[0]}), got {sizes[1]}.")
    if len(parts) == 2 and bool((parts[0].present & parts[1].present).any()):
        raise ValueError("--views must not be views of --table, got one that is in both: omit it from --views.")
    embeddings = torch.stack([torch.as_tensor(part.embeddings) for part in parts]).sum(0)  # zero if missing
    mask = torch.stack([part.present for part in parts]).any(0)
    return replace(parts[0], embeddings=embeddings, mask=mask, index=torch.arange(mask.shape[1]))


def embed_query(run: str | os.PathLike[str], arguments: Sequence[str], *, trust: bool = False) -> Embedded:
    """Embed the objects described by the arguments `NAME=VALUE`, in one or several views.

    NAME is a view, or a column of the view of numbers and categories. VALUE is a text, the path of an image or of a
    sound, a list of numbers, a number or a category, as in a cell of the table. For a view of vectors, it may also be
    an array file with one row per object; for a run trained on arrays, it must be such a file.
    """
    net = load(run, trust=trust)
    given: dict[str, np.ndarray | list[str] | dict[str, str]] = {}
    arrays: dict[str, str] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        if not value.strip():
            raise ValueError(f"--query must have a value for {name!r}, got none.")
        recipes = dict(zip(net.view_names, net.inputs or [{"kind": "array"}] * len(net.view_names)))
        table = [view for view, recipe in recipes.items() if name in recipe.get("columns", ()) and name not in recipes]
        if table and recipes[table[0]]["kind"] == "table":
            if not is_known(table[0], recipes[table[0]], name, value):
                raise ValueError(f"--query must have a category of the training rows in {name!r}, got {value!r}.")
            cells = given.setdefault(table[0], {})
            assert isinstance(cells, dict)
            cells[name] = value
            continue
        if name not in recipes:
            known = [recipe["columns"] if recipe.get("kind") == "table" else [view] for view, recipe in recipes.items()]
            _checks.one_of("view of --query", name, [view for views in known for view in views])
        kind = recipes[name].get("kind")
        if kind == "table":
            columns = ", ".join(recipes[name]["columns"])
            raise ValueError(f"--query must name the columns of view {name!r} ({columns}), as in COLUMN=VALUE.")
        if name in given:
            raise ValueError(f"--query must be one value per view, got two for {name!r}.")
        if kind == "tfidf" and not is_known(name, recipes[name], recipes[name]["columns"][0], value):
            raise ValueError(
                f"--query must have at least one word of the training texts of view {name!r}, got {value!r}."
            )
        given[name] = [value]
        if kind == "array" or (kind == "vector" and not value.lstrip().startswith("[")):
            arrays[name] = value
    with ArrayFiles() as files:
        given |= {name: files.read(value, name="--query", notes=[]) for name, value in arrays.items()}
    embedded = net.embed(given)
    return replace(embedded, index=torch.arange(embedded.present.shape[1]))


def _arrays(net: TrainedNet, views: Sequence[str]) -> dict[str, np.ndarray]:
    names = net.view_names
    pairs = [argument.partition("=") for argument in views]
    if all(sign for _, sign, _ in pairs):
        files = {_checks.one_of("view of --views", name, names): file for name, _, file in pairs}
    elif any(sign for _, sign, _ in pairs):
        raise ValueError("--views must be NAME=FILE for all files or for none, got both.")
    else:
        stems = file_names(views)
        if not set(stems) <= set(names):
            if len(views) != len(names):
                raise ValueError(
                    f"--views must be NAME=FILE for some of the views {', '.join(names)}, or {len(names)} files in "
                    f"their order, got {len(views)}, and some are not named after a view."
                )
            stems = names
        files = dict(zip(stems, views))
    if len(files) < len(views):
        raise ValueError(f"--views must be one file per view, got {len(views)} for {len(files)}.")
    with ArrayFiles() as opened:
        return {name: opened.read(file, name="--views", notes=[]) for name, file in files.items()}
