"""Embeddings of all rows of a run's data, stored in the run folder until the network, settings or data files change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as bytes_of

from m3g.data.storage.limits import check_safetensors
from m3g.data.tables.new_objects import Recipe
from m3g.evaluation import Embedded
from m3g.training.runs.embed import embed_run
from m3g.training.runs.files import atomic
from m3g.training.runs.folder import Run
from m3g.training.runs.location import located, open_run_table, path_options, split_key
from m3g.training.settings.config import Config

FILE = "embeddings.safetensors"
TENSORS = ("embeddings", "labels", "mask", "index")
LISTS = ("split", "view_names", "class_names")


def collection(run: Run, *, trust: bool = False) -> Embedded:
    """Return the embeddings of all rows, read from `embeddings.safetensors` in the run folder if it is up to date.

    The file is up to date if the network, the settings, and the sizes and modification times of all data files have not
    changed. Otherwise, or if it is damaged, it is replaced. Nothing is stored if the run folder is not writable.
    """
    state = fingerprint(run)
    path = run.path / FILE
    stored = _read(path, state)
    if stored is not None:
        return stored
    points = replace(embed_run(run, trust=trust), features=None)
    tensors = {name: getattr(points, name).contiguous() for name in TENSORS if getattr(points, name) is not None}
    lists = {name: list(getattr(points, name)) for name in LISTS if getattr(points, name) is not None}
    with contextlib.suppress(ValueError), atomic(path) as file:  # the folder may not be writable
        file.write(bytes_of(tensors, metadata={"state": state, "lists": json.dumps(lists)}))
    return points


def _read(path: Path, state: str) -> Embedded | None:
    try:
        with open(path, "rb") as file:
            check_safetensors(file.read(8))
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("state") != state:
                return None
            tensors = {name: stored.get_tensor(name) for name in TENSORS if name in stored.keys()}  # noqa: SIM118
        lists = json.loads(metadata["lists"])
        points = Embedded(**tensors, **{name: lists[name] for name in LISTS if name in lists})
        number = points.present.shape[1]
        sizes = [len(part) for part in (points.labels, points.index, points.split) if part is not None]
        return points if sizes == [number] * len(sizes) and isinstance(points.index, torch.Tensor) else None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AssertionError, RecursionError):
        return None


def fingerprint(run: Run) -> str:
    """Return a digest of the network, the settings, and the sizes and modification times of the data files."""
    config = run.open()
    parts: list[str | list[str | int]] = [run.model_text, config.to_yaml()]
    for path in _files(run, located(config, run), json.loads(run.model_text).get("inputs") or []):
        with contextlib.suppress(OSError):  # a missing file is reported when it is read
            status = os.stat(path)
            parts.append([str(path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _files(run: Run, config: Config, inputs: list[Recipe]) -> Iterator[str | Path]:
    """Yield all data files of a configuration: those in its options, in folders, and in the cells of a table."""
    for file in (Path(split_key(path)[0]) for paths in path_options(config).values() for path in paths):
        yield file
        if file.is_dir():
            yield from (Path(folder, part) for folder, _, parts in os.walk(file) for part in sorted(parts))
    columns = [recipe["columns"][0] for recipe in inputs if recipe.get("kind") in ("image", "audio")]
    if columns and "table" in config.data_options:
        source = open_run_table(config, run)
        for _, batch in source.batches(columns):
            for column in columns:
                cells = batch[column].to_pylist()
                paths = (source.folders.find(cell, allow_outside=True) for cell in cells if isinstance(cell, str))
                yield from (path for path in paths if path is not None)
