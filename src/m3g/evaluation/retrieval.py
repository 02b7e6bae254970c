"""Retrieval of a point in another view: recall at 1, 5 and 10 and the median rank, for every pair of views."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.costs import Cost
from m3g.evaluation.embedded import Embedded, Readout

LEVELS = (1, 5, 10)
MAX_SCORES = 2**20  # maximum number of similarities computed at a time


class Retrieval(NamedTuple):
    """Result of `retrieval`.

    Attributes:
        recall: for each level, R@level as a matrix (k, k) with the query's view as row and the searched view as column;
            the diagonal is trivially 1.
        median_rank: the median rank of the true partner, as a matrix of the same form.
        contributions: for each level, the contribution of every object (n,) to the off-diagonal mean of `recall`,
            scaled so that the contributions have the same mean; NaN for objects with fewer than two views. Without
            missing views, the contribution of an object is the fraction of ordered pairs of views in which its true
            partner is among the first `level`.
    """

    recall: dict[int, Tensor]
    median_rank: Tensor
    contributions: dict[int, Tensor]


def truth_ranks(queries: Tensor, gallery: Tensor, truth: Tensor) -> Tensor:
    """Return the rank (from 1) of row truth[i] of the gallery for query i, by cosine similarity of unit vectors.

    Each other point with the same similarity as the true one increases the rank by 1/2, so that collapsed embeddings
    have the mean rank of a random order.
    """
    chunk = max(1, min(1024, MAX_SCORES // len(gallery)))
    # One tensor for all ranks, because small tensors between large ones fragment the memory.
    ranks = torch.empty(len(queries), device=queries.device)
    for part, true, rank in zip(queries.split(chunk), truth.split(chunk), ranks.split(chunk)):
        scores = part @ gallery.T
        true_scores = scores.gather(1, true[:, None])
        above, ties = (scores > true_scores).sum(1), (scores == true_scores).sum(1) - 1
        rank.copy_(1 + above + 0.5 * ties)
    return ranks


def recall_at_1(
    queries: Tensor, gallery: Tensor, *, queried: Tensor, searched: Tensor, labels: Tensor | None = None
) -> float | None:
    """Return the fraction of queries (n, d) for which the same row of the gallery (n, d) has the largest cosine.

    Args:
        queried, searched: bool (n,), the rows that have a query and a candidate, respectively. Queries without a
            candidate in the same row are skipped.
        labels: (n,); if given, any candidate of the same class is correct.

    Returns:
        The fraction, or None if no row has both a query and a candidate.
    """
    both = queried & searched
    if not bool(both.any()):
        return None
    left, right = normalize(queries[both], dim=-1), normalize(gallery[searched], dim=-1)
    if labels is not None:
        return float((labels[searched][(left @ right.T).argmax(1)] == labels[both]).double().mean())
    gallery_index = searched.cumsum(0) - 1
    return float((truth_ranks(left, right, gallery_index[both]) <= 1).double().mean())


def recall_from_others(
    points: Embedded, m: int, *, shown: Tensor | None = None, readout: Readout = "mean", labels: Tensor | None = None
) -> float | None:
    """Return `recall_at_1` in view m for queries computed from the other views by `Embedded.read_out`.

    `shown`, bool (k, n), selects the entries used for the queries, by default all; those of view m are ignored.
    """
    shown = points.present if shown is None else shown
    queries, gallery = points.read_out(readout, shown=shown, view=m), points.views[m]
    if isinstance(readout, Cost):
        gallery = readout.candidates(gallery)
    queried = shown.sum(0) > shown[m]  # objects with a view other than m
    return recall_at_1(queries, gallery, queried=queried, searched=points.present[m], labels=labels)


def retrieval(embeddings: Tensor, *, mask: Tensor | None = None) -> Retrieval:
    """Rank the true partner of each point among all points of another view, for every pair of views.

    Args:
        embeddings: (k, n, d); only directions matter.
        mask: bool (k, n), True where an object has a view; missing points are neither queries nor candidates.

    Example:
        >>> views = torch.randn(1, 50, 8, generator=torch.Generator().manual_seed(0)).expand(3, 50, 8)
        >>> retrieval(views).recall[1].mean()
        tensor(1., dtype=torch.float64)
    """
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    mask = _checks.presence(mask, embeddings)
    units = normalize(embeddings.double(), dim=-1)
    k, n = units.shape[:2]
    recall = {level: torch.ones(k, k, dtype=torch.float64) for level in LEVELS}
    median = torch.ones(k, k, dtype=torch.float64)
    sums = {level: torch.zeros(n, dtype=torch.float64) for level in LEVELS}
    scored = torch.zeros(n, dtype=torch.bool)
    all_points = torch.ones(n, dtype=torch.bool, device=units.device)
    for l in range(k):
        for m in range(k):
            if l == m:
                continue
            searched = all_points if mask is None else mask[m]
            queried = searched if mask is None else mask[l] & mask[m]
            if not bool(queried.any()):
                raise ValueError(
                    f"mask must leave at least one object with both views of each pair, got none for views {l} and {m}."
                )
            gallery_index = searched.cumsum(0) - 1
            ranks = truth_ranks(units[l][queried], units[m][searched], gallery_index[queried])
            scored |= queried.cpu()
            for level in LEVELS:
                hits = (ranks <= level).double()
                recall[level][l, m] = hits.mean()
                sums[level][queried.cpu()] += hits.cpu() / (len(hits) * k * (k - 1))
            median[l, m] = ranks.double().median()
    contributions = {level: torch.where(scored, part * scored.sum(), torch.nan) for level, part in sums.items()}
    return Retrieval(recall, median, contributions)
