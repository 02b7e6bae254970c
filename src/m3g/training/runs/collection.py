"""The embeddings of all rows of a run's data, kept in the run folder until the network or the data change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as bytes_of

from m3g.data.storage.limits import check_safetensors
from m3g.data.tables.source import open_table
from m3g.evaluation import Embedded
from m3g.training.runs.embed import embed_run
from m3g.training.runs.files import atomic
from m3g.training.runs.folder import Run
from m3g.training.runs.location import located, path_options, split_key
from m3g.training.settings.config import Config

FILE = "embeddings.safetensors"
TENSORS = ("embeddings", "labels", "mask", "index")
LISTS = ("split", "view_names", "class_names")


def collection(run: Run, *, trust: bool = False) -> Embedded:
    """The embeddings of all rows, read from `embeddings.safetensors` of the run folder if they are up to date.

    They are if network, settings, and the sizes and times of all data files are those that they were computed with. A
    damaged file is computed anew; a run folder that cannot be written is left as it is.
    """
    state = fingerprint(run)
    path = run.path / FILE
    stored = _read(path, state)
    if stored is not None:
        return stored
    found = replace(embed_run(run, trust=trust), features=None)
    tensors = {name: getattr(found, name).contiguous() for name in TENSORS if getattr(found, name) is not None}
    lists = {name: list(getattr(found, name)) for name in LISTS if getattr(found, name) is not None}
    with contextlib.suppress(ValueError), atomic(path) as file:  # a folder that cannot be written
        file.write(bytes_of(tensors, metadata={"state": state, "lists": json.dumps(lists)}))
    return found


def _read(path: Path, state: str) -> Embedded | None:
    try:
        with open(path, "rb") as file:
            check_safetensors(file.read(8))
        with safe_open(path, framework="pt") as stored:
            noted = stored.metadata() or {}
            if noted.get("state") != state:
                return None
            tensors = {name: stored.get_tensor(name) for name in TENSORS if name in stored.keys()}  # noqa: SIM118
        lists = json.loads(noted["lists"])
        found = Embedded(**tensors, **{name: lists[name] for name in LISTS if name in lists})
        number = found.present.shape[1]
        sizes = [len(part) for part in (found.labels, found.index, found.split) if part is not None]
        return found if sizes == [number] * len(sizes) and isinstance(found.index, torch.Tensor) else None
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AssertionError, RecursionError):
        return None


def fingerprint(run: Run) -> str:
    """A digest of the network, the settings, and the sizes and times of the data files."""
    config = run.open()
    parts: list[Any] = [run.model_text, config.to_yaml()]
    for path in _files(located(config, run), json.loads(run.model_text).get("inputs") or []):
        with contextlib.suppress(OSError):  # a missing file is reported when it is read
            status = os.stat(path)
            parts.append([str(path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _files(config: Config, inputs: list[dict[str, Any]]) -> Iterator[str | Path]:
    """All data files of a configuration: those of its options, those in folders, those that a table names."""
    for file in (Path(split_key(path)[0]) for paths in path_options(config).values() for path in paths):
        yield file
        if file.is_dir():
            yield from (Path(folder, part) for folder, _, parts in os.walk(file) for part in sorted(parts))
    columns = [recipe["columns"][0] for recipe in inputs if recipe.get("kind") in ("image", "audio")]
    if columns and "table" in config.data_options:
        source = open_table(config.data_options["table"])
        for _, batch in source.batches(columns):
            for column in columns:
                cells = batch[column].to_pylist()
                yield from (source.folder / cell for cell in cells if isinstance(cell, str) and cell)
