"""The nearest objects to a query that is known in some of the views."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.evaluation.embedded import Readout, read_out


class Found(NamedTuple):
    """For every query the places (q, top) of its nearest objects, the nearest first, and their cosines (q, top)."""

    places: Tensor
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
) -> Found:
    """The objects whose mean embedding is most similar to that of the query, whatever views either has.

    A query and an object are each one vector: the mean of the unit vectors of the views that they have. Objects are
    ordered by the cosine between the two.

    Args:
        queries: (k, q, d); what `query_mask` marks as absent is not looked at.
        objects: (k, n, d), in the same space.
        query_mask: bool (k, q), true where a query has a view; None if all have.
        mask: bool (k, n), likewise for the objects.
        top: how many to find, at most n.
        readout: the vector of a query from its views, see `m3g.evaluation.read_out`; of an object it is the mean.
        without: (q,), for each query the place of an object that must not be found, the query itself say; -1 for none.

    Example:
        >>> objects = torch.eye(4).expand(3, 4, 4)
        >>> only_second_view = torch.tensor([[False], [True], [False]])
        >>> query = torch.tensor([0.1, 0.2, 0.9, 0.3]).expand(3, 1, 4)
        >>> search(query, objects, query_mask=only_second_view, top=2).places
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
    left = n if without is None or not bool((without >= 0).any()) else n - 1
    if not 1 <= _checks.positive_int("top", top) <= left:
        raise ValueError(f"top must be at most the {left} objects there are to find, got {top}.")
    asked = normalize(read_out(queries, _checks.presence(query_mask, queries), readout=readout), dim=-1)
    scores = asked @ normalize(read_out(objects, _checks.presence(mask, objects)), dim=-1).T
    if without is not None:
        which = (without >= 0).nonzero().flatten()
        scores[which, without[which]] = -torch.inf
    best = scores.topk(top, dim=1)
    return Found(best.indices, best.values)
