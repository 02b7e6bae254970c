"""Search for the objects nearest to a query with any subset of the views."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.costs import Cost
from m3g.evaluation.embedded import Readout, read_out
from m3g.evaluation.index import shortlist


class Neighbours(NamedTuple):
    """Objects nearest to each query, the nearest first.

    Attributes:
        indices: (q, top), indices of the objects.
        similarities: (q, top), cosines of the objects with the query; with a cost, mean cosines over views.
    """

    indices: Tensor
    similarities: Tensor


def search(
    queries: Tensor,
    objects: Tensor,
    *,
    query_mask: Tensor | None = None,
    mask: Tensor | None = None,
    top: int = 10,
    without: Tensor | None = None,
    readout: Readout = "mean",
    approximate: bool = False,
) -> Neighbours:
    """Return the objects that are most similar to each query. Queries and objects may have missing views.

    By default, queries and objects are represented by the mean of the unit vectors of their present views and compared
    by cosine. With a cost as `readout`, a vector computed by the cost from the views of the query is compared with
    those views of an object that are missing in the query. If the query has all views of the object, each of them is
    compared with the vector computed from the other views of the query. If the query has no other view, the similarity
    is -1.

    Args:
        queries: (k, q, d); entries that `query_mask` marks as missing are not read.
        objects: (k, n, d), in the same space.
        query_mask: bool (k, q), True where a query has a view; None if all are present.
        mask: bool (k, n), True where an object has a view; None if all are present.
        top: number of objects per query, at most n, or n - 1 if `without` excludes an object.
        without: (q,), for each query the index of an object to exclude, such as the query itself; -1 for none.
        readout: reduction of the views of a query to one vector of d features, see `m3g.evaluation.read_out`, except
            `"concat"`. Objects use the mean, except with a cost.
        approximate: search only the candidates that an approximate index returns for any of the queries: the larger of
            200 and 10 · `top` for each query (with a cost, for each query and view). Some of the nearest objects may be
            missed. The search is exact if there are at most `top` candidates. Requires faiss.

    Example:
        >>> objects = torch.eye(4).expand(3, 4, 4)
        >>> only_second_view = torch.tensor([[False], [True], [False]])
        >>> query = torch.tensor([0.1, 0.2, 0.9, 0.3]).expand(3, 1, 4)
        >>> search(query, objects, query_mask=only_second_view, top=2).indices
        tensor([[2, 3]])
    """
    queries, objects = (
        _checks.aligned_views(given, name=name) for given, name in ((queries, "queries"), (objects, "objects"))
    )
    if queries.shape[0] != objects.shape[0] or queries.shape[2] != objects.shape[2]:
        raise ValueError(
            f"queries must be (k, q, d) with the k and d of the objects {_checks.shape_of(objects)}, "
            f"got {_checks.shape_of(queries)}."
        )
    n = objects.shape[1]
    num_searched = n if without is None or not bool((without >= 0).any()) else n - 1
    if not 1 <= _checks.positive_int("top", top) <= num_searched:
        raise ValueError(f"top must be at most {num_searched}, the number of objects searched, got {top}.")
    if isinstance(readout, str):
        _checks.one_of("readout", readout, ("mean",))
    given, present = _checks.presence(query_mask, queries), _checks.presence(mask, objects)
    chosen = torch.arange(0)
    if approximate:
        chosen = _shortlisted(queries, given, objects, present, readout, size=min(max(10 * top, 200), n))
        if without is not None:
            chosen = torch.cat([chosen, without[without >= 0]]).unique()
    if len(chosen) > top:
        if without is not None:
            without = torch.where(without >= 0, torch.searchsorted(chosen, without.clamp(min=0)), -1)
        part = None if present is None else present[:, chosen]
        nearest = search(
            queries, objects[:, chosen], query_mask=given, mask=part, top=top, without=without, readout=readout
        )
        return Neighbours(chosen[nearest.indices], nearest.similarities)
    if isinstance(readout, Cost):
        scores = _scores_by_cost(readout, queries, given, objects, present)
    else:
        vectors = normalize(read_out(queries, given, readout=readout), dim=-1)
        scores = vectors @ normalize(read_out(objects, present), dim=-1).T
    if without is not None:
        rows = (without >= 0).nonzero().flatten()
        scores[rows, without[rows]] = -torch.inf
    best = scores.topk(top, dim=1)
    return Neighbours(best.indices, best.values)


def _shortlisted(
    queries: Tensor, given: Tensor | None, objects: Tensor, present: Tensor | None, readout: Readout, *, size: int
) -> Tensor:
    """Return the indices of the objects that an approximate index returns for at least one of the queries.

    The index returns `size` objects per query; with a cost, per query and view.
    """
    if isinstance(readout, Cost):
        pairs = [
            (_candidates(readout, objects, present, m), _query(readout, queries, given, m)) for m in range(len(queries))
        ]
    else:
        pairs = [(normalize(read_out(objects, present), dim=-1), read_out(queries, given, readout=readout))]
    indices = torch.cat([shortlist(*pair, size=size).flatten() for pair in pairs])
    return indices[indices >= 0].unique()  # faiss pads short results with -1


def _query(cost: Cost, queries: Tensor, given: Tensor | None, view: int) -> Tensor:
    """Return the query (q, e) for a view, scaled to unit length; e depends on the cost."""
    return normalize(read_out(queries, given, readout=cost, view=view), dim=-1)


def _candidates(cost: Cost, objects: Tensor, present: Tensor | None, view: int) -> Tensor:
    """Return the unit vectors (n, e) that are compared with the query of a view; zero for objects without the view."""
    points = objects[view] if present is None else torch.where(present[view].unsqueeze(-1), objects[view], 0.0)
    return normalize(cost.candidates(normalize(points, dim=-1)), dim=-1)


def _scores_by_cost(
    cost: Cost, queries: Tensor, given: Tensor | None, objects: Tensor, present: Tensor | None
) -> Tensor:
    """Return the mean cosine (q, n) between the query for a view and that view of an object, over the compared views.

    The compared views are those of the object that were not given in the query or, if all of them were given, the views
    of the object for which the query has another view. The score is -1 if no view is compared.
    """
    k = len(queries)
    queried = torch.ones(queries.shape[:2], dtype=torch.bool, device=queries.device) if given is None else given
    known = torch.ones(objects.shape[:2], dtype=torch.bool, device=objects.device) if present is None else present
    missing = (~queried).unsqueeze(2) & known.unsqueeze(1)
    # A given view is compared only if others were given too, because its query is computed from them.
    predicted = (queried.sum(0) - queried.long() > 0).unsqueeze(2) & known.unsqueeze(1)
    compared = torch.where(missing.any(0), missing, predicted)
    total = queries.new_zeros(compared.shape[1:])
    for m in range(k):
        cosines = _query(cost, queries, queried, m) @ _candidates(cost, objects, known, m).T
        total = total + torch.where(compared[m], cosines, 0.0)
    num_compared = compared.sum(0)
    return torch.where(num_compared > 0, total / num_compared.clamp(min=1), -1.0)
