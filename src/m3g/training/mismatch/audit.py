"""`audit`: list the entries that probably do not match their row, with the rows that they resemble most."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks as checks
from m3g.costs import CircularVariance, Cost
from m3g.data import ViewsData
from m3g.data.splits import Split
from m3g.evaluation import Embedded
from m3g.nets import MultiViewNet
from m3g.training.loop.build import build_data, build_loss
from m3g.training.mismatch.entries import Entry, read_entries
from m3g.training.mismatch.strength import MAX_ROWS, reported_views
from m3g.training.runs.embed import embed
from m3g.training.runs.export import load
from m3g.training.runs.folder import Run
from m3g.training.settings.config import Config


class Partner(NamedTuple):
    """The row that an entry resembles most, and the cosines of the entry with that row and with its own row.

    `own_similarity` is 0 if no other entry of its own row is reliable.
    """

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
    """Return, for each entry, the row that it resembles most; None if that is its own row.

    The entry is compared with every row that has a reliable entry in another view. A row is represented by the mean
    direction of its reliable entries in the other views, or by the query that `cost` computes from them.

    Args:
        entries: the entries to compare.
        embeddings: (k, n, d), those of the rows `index` (n,).
        trusted: bool (k, n), False for missing or unreliable entries.
        index: (n,), the row numbers.
        view_names: the names of the k views.
        cost: the read-out of the loss, see `m3g.losses.ViewLoss.readout`; None means the mean direction.
    """
    points = normalize(embeddings.float(), dim=-1)
    cost = CircularVariance() if cost is None else cost
    position = {int(row): i for i, row in enumerate(index)}
    partners: list[Partner | None] = []
    for entry in entries:
        l, i = list(view_names).index(entry.view), position[entry.row]
        others = trusted.sum(0) - trusted[l].long() > 0
        query = normalize(cost.query(points, l, mask=trusted), dim=-1)
        similar = torch.where(others, query @ normalize(cost.candidates(points[l, i]), dim=-1), 0.0)
        best = int(similar.masked_fill(~others, -torch.inf).argmax())
        partners.append(None if best == i else Partner(int(index[best]), float(similar[best]), float(similar[i])))
    return partners


class Audit(NamedTuple):
    """The listed entries, each with the row that it resembles most, and a remark for the user, possibly empty."""

    entries: list[tuple[Entry, Partner | None]]
    remark: str = ""


def audit(run: str | os.PathLike[str], *, count: int | None = None, trust: bool = False) -> Audit:
    """Return the least reliable entries of a run trained with `mismatch`, each with the row it resembles most.

    Args:
        run: the folder of the run.
        count: number of entries; by default all that are more likely wrong than correct, in the views that
            `m3g.training.mismatch.strength` selects.
        trust: allow encoder classes from outside m3g, torch.nn and transformers.
    """
    entries = read_entries(run)
    unreliable = [entry for entry in entries if entry.log_odds < 0]
    listed = unreliable if count is None else entries[: checks.positive_int("count", count)]
    folder = Run.of(run)
    config = folder.open()
    data = build_data(config, folder)
    index: Tensor = data.datasets["train"].index  # type: ignore[attr-defined]
    position = {int(row): i for i, row in enumerate(index)}
    for entry in entries:
        if entry.view not in data.view_names or entry.row not in position:
            raise ValueError(
                f"{folder.mismatch} must list training rows and views of the run ({', '.join(data.view_names)}), "
                f"got row {entry.row}, view {entry.view!r}."
            )
    if not listed:
        return Audit([], _why_empty(entries, config, data))
    net = load(run, trust=trust, scaled=True)
    cost = build_loss(config).readout or CircularVariance()
    remark = ""
    if count is None:
        weak = _weak_views(net, data, entries, cost)
        unlisted = [entry for entry in unreliable if entry.view in weak]
        listed = [entry for entry in unreliable if entry.view not in weak]
        if unlisted:
            views = ", ".join(dict.fromkeys(entry.view for entry in unlisted))
            remark = (
                f"{len(unlisted)} unreliable entries of {views} are not listed, because most of them are probably "
                "correct: in held-out rows, entries of the same views often resemble other rows as well. Use --count "
                "to list the least reliable entries."
            )
    train = embed(net, data, "train")
    assert train.embeddings is not None
    trusted = torch.ones(train.embeddings.shape[:2], dtype=torch.bool) if train.mask is None else train.mask.clone()
    for entry in unreliable:
        trusted[data.view_names.index(entry.view), position[entry.row]] = False
    partners = find_partners(listed, train.embeddings, trusted, index, data.view_names, cost=cost)
    return Audit(list(zip(listed, partners)), remark)


def _weak_views(net: MultiViewNet, data: ViewsData, entries: Sequence[Entry], cost: Cost) -> list[str]:
    """Return the views whose unreliable entries are not reported."""
    held_out_splits: tuple[Split, ...] = ("val", "test")
    splits = [split for split in held_out_splits if data.num_rows(split)]
    if not splits:
        return []
    evaluated = Counter(entry.view for entry in entries)
    num_unreliable = Counter(entry.view for entry in entries if entry.log_odds < 0)
    unreliable = torch.tensor([num_unreliable[name] / max(evaluated[name], 1) for name in data.view_names])
    held_out = Embedded.join([embed(net, data, split, most=MAX_ROWS) for split in splits])
    reported = reported_views(held_out, unreliable, cost)
    return [name for name, is_reported in zip(data.view_names, reported) if not is_reported]


def _why_empty(entries: Sequence[Entry], config: Config, data: ViewsData) -> str:
    """Return why no entry is listed: none is unreliable, or none was evaluated.

    The entries of a pair of views are evaluated once the network distinguishes the rows in these views.
    """
    num_unevaluated = data.k * data.num_rows("train") - len(entries)
    if not entries:
        return (
            "no entry was evaluated, because the network did not learn to distinguish rows. Train for more than "
            f"{config.loop.epochs} epochs (loop.epochs) or with batches of more than {data.batch_size} rows "
            "(data_options.batch_size), and check that recall_at_1 in results.json is above chance."
        )
    most = f"{entries[0].view} of row {entries[0].row} ({entries[0].reliability:.3f})"
    return (
        f"no entry is more likely wrong than correct; the least reliable of {len(entries)} is {most}. "
        f"{num_unevaluated} entries are missing or were not evaluated. Use --count 20 to list the least reliable ones."
    )
