"""All rows of a run's data as its network sees them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data import ViewsData
from m3g.nets import MultiViewNet
from m3g.training.loop.build import build_data
from m3g.training.runs.evaluate import embed
from m3g.training.runs.export import load
from m3g.training.runs.folder import Run

SPLITS = ("train", "val", "test", "all")


@dataclass
class EmbeddedRun:
    """The embeddings of one split of a run, or of all of them, one after the other.

    Attributes:
        embeddings: (k, n, d).
        mask: bool (k, n), true where a row has a view; None if every row has every view.
        labels: (n,), None for unlabelled data.
        index: (n,), the rows of the user's files.
        split: (n,), the names of the splits.
        data: the data module of the run.
    """

    embeddings: Tensor
    mask: Tensor | None
    labels: Tensor | None
    index: np.ndarray
    split: np.ndarray
    data: ViewsData

    def label_name(self, place: int) -> str:
        assert self.labels is not None
        names, code = self.data.class_names, int(self.labels[place])
        return str(code) if names is None else names[code]


def embed_run(
    run: str | os.PathLike[str], split: str = "all", *, net: MultiViewNet | None = None, trust: bool = False
) -> EmbeddedRun:
    """Embed the rows of a finished run with its network, or with another `net` for the same scaled inputs."""
    _checks.one_of("split", split, SPLITS)
    config = Run(run).open()
    net = load(run, trust=trust, scaled=True) if net is None else net
    data = build_data(config)
    names: list[Any] = [name for name in data.datasets if split in ("all", name) and data.num_rows(name)]
    if not names:
        raise ValueError(f"split must be one with rows in it, got {split!r}, which has none.")
    parts: list[Any] = [embed(net, data, name) for name in names]
    masked, labelled = (parts[0].mask is not None, parts[0].labels is not None)
    return EmbeddedRun(
        embeddings=torch.cat([part.embeddings for part in parts], dim=1),
        mask=torch.cat([part.mask for part in parts], dim=1) if masked else None,
        labels=torch.cat([part.labels for part in parts]) if labelled else None,
        index=np.concatenate([part.index.numpy() for part in parts]),
        split=np.concatenate([np.full(data.num_rows(name), name) for name in names]),
        data=data,
    )
