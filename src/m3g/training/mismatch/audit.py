"""Which entries do not belong to their row, most doubtful first, and where they may belong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks as checks
from m3g.costs import CircularVariance, Cost
from m3g.training.loop.build import build_data, build_loss
from m3g.training.mismatch.entries import Entry, read_entries
from m3g.training.runs.embed import embed
from m3g.training.runs.export import load
from m3g.training.runs.folder import Run


class Partner(NamedTuple):
    """The row whose other views an entry resembles most, with the cosine to it and to its own row."""

    row: int
    similarity: float
    own_similarity: float


def find_partners(
    entries: Sequence[Entry],
    embeddings: Tensor,
    trusted: Tensor,
    index: Tensor,
    view_names: Sequence[str],
    *,
    cost: Cost | None = None,
) -> list[Partner | None]:
    """For each entry the row it resembles most; None where that is the row it stands in.

    An entry is compared with the mean direction of the trusted entries that each row has in the other views, or with
    the query of a cost made of them.

    Args:
        entries: what to look for.
        embeddings: (k, n, d), of the rows `index` (n,).
        trusted: bool (k, n), False where an entry is absent or doubtful.
        view_names: the names of the k views.
        cost: the read-out of the loss, see `m3g.losses.ViewLoss.readout`; None is the mean.
    """
    points = normalize(embeddings.float(), dim=-1)
    cost = CircularVariance() if cost is None else cost
    place = {int(row): i for i, row in enumerate(index)}
    found: list[Partner | None] = []
    for entry in entries:
        l, i = list(view_names).index(entry.view), place[entry.row]
        others = trusted.sum(0) - trusted[l].long() > 0
        query = normalize(cost.query(points, l, mask=trusted), dim=-1)
        similar = torch.where(others, query @ normalize(cost.candidates(points[l, i]), dim=-1), 0.0)
        best = int(similar.argmax())
        found.append(None if best == i else Partner(int(index[best]), float(similar[best]), float(similar[i])))
    return found


def audit(
    run: str | os.PathLike[str], *, count: int | None = None, trust: bool = False
) -> list[tuple[Entry, Partner | None]]:
    """The most doubtful entries of a run that was trained with `mismatch`, each with its likely row.

    Args:
        run: the folder of the run.
        count: how many; by default those that are more likely wrong than right.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
    """
    entries = read_entries(run)
    doubtful = [entry for entry in entries if entry.log_odds < 0]
    first = doubtful if count is None else entries[: checks.positive_int("count", count)]
    folder = Run.of(run)
    config = folder.open()
    data = build_data(config, folder)
    seen = embed(load(run, trust=trust, scaled=True), data, "train")
    assert seen.embeddings is not None
    index: Tensor = data.datasets["train"].index  # type: ignore[attr-defined]
    trusted = torch.ones(seen.embeddings.shape[:2], dtype=torch.bool) if seen.mask is None else seen.mask.clone()
    place = {int(row): i for i, row in enumerate(index)}
    for entry in doubtful:
        trusted[data.view_names.index(entry.view), place[entry.row]] = False
    cost = build_loss(config).readout
    return list(zip(first, find_partners(first, seen.embeddings, trusted, index, data.view_names, cost=cost)))


def nothing_found(run: str | os.PathLike[str]) -> str:
    """What to make of a list of doubtful entries that is empty; no words where it is not.

    Either nothing is wrong, or the judge saw too little: two views are judged once their rows can be told apart.
    """
    entries = read_entries(run)
    if any(entry.log_odds < 0 for entry in entries):
        return ""
    folder = Run.of(run)
    config = folder.open()
    data = build_data(config, folder)
    unseen = data.k * data.num_rows("train") - len(entries)
    if not entries:
        return (
            "no entry was judged: the network never told the rows of two views apart. Train longer (loop.epochs "
            f"{config.loop.epochs}), with a larger batch (data_options.batch_size {data.batch_size}), or look at "
            "retrieval in results.json: at chance there is nothing to judge by."
        )
    most = f"{entries[0].view} of row {entries[0].row} ({entries[0].reliability:.3f})"
    return (
        f"no entry is more likely wrong than right; the most doubtful of {len(entries)} is {most}. "
        f"{unseen} entries were not judged. Use --count 20 to see the first ones."
    )
