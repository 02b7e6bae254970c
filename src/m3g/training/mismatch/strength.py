"""Selection of the views whose unreliable entries are probably mismatches, for `m3g audit`.

A weak view (a category, a short text) has correct entries that resemble their own row no more than other rows, so that
they look like mismatches. Held-out rows show how frequent such entries are. For an entry (l, i) of a held-out row,

    pi = fraction of the other rows to which the entry is more similar than to its own row.

pi is uniform on [0, 1] for a mismatched entry and concentrated near 0 for a correct entry of a strong view. Let

    q = 2 P(pi > 1/2)                 the fraction of entries that look random,
    b = P(0.1 < pi <= 1/2) - 0.4 q    the fraction of entries in between: neither random nor near 0,
    v                                 the fraction of the view's evaluated training entries that are unreliable.

The unreliable entries of the view are reported if

- b <= `MAX_BETWEEN`: correct entries are separated from random ones;
- v >= `MIN_EXPLAINED` q: training fits most correct entries, including those that would look random in held-out rows,
  so clean data fall below this limit;
- v >= b: correct entries in between may be unreliable too;
- v >= `MIN_UNRELIABLE` unless b <= `SEPARATED`: a smaller fraction may be false alarms of a view whose correct entries
  are not fully separated from random ones.

All four conditions hold for a strong view with mismatches, whether or not its held-out rows contain mismatches too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g.costs import Cost
from m3g.evaluation import Embedded

MAX_BETWEEN = 0.08
MIN_EXPLAINED = 0.4
SEPARATED, MIN_UNRELIABLE = 0.01, 0.02
MIN_ROWS = 40  # a view with fewer held-out entries is always reported
MAX_ROWS = 2000  # maximum number of held-out rows per split


def more_similar(embeddings: Tensor, mask: Tensor, cost: Cost) -> list[Tensor]:
    """Return, for every view, the fractions pi of the present entries whose row has another view.

    Args:
        embeddings: (k, n, d).
        mask: bool (k, n).
        cost: the read-out of the loss; its query of the other views of a row is compared with the entry.

    Example:
        >>> from m3g.costs import CircularVariance
        >>> points = torch.eye(3).repeat(2, 1, 1)
        >>> points[1] = points[1, [0, 2, 1]]
        >>> more_similar(points, torch.ones(2, 3, dtype=torch.bool), CircularVariance())[1].tolist()
        [0.0, 0.5, 0.5]
    """
    points = normalize(embeddings.float(), dim=-1)
    fractions = []
    for l in range(len(points)):
        rows = ((mask.sum(0) - mask[l].long()) > 0) & mask[l]
        query = normalize(cost.query(points, l, mask=mask), dim=-1)[rows]
        similar = normalize(cost.candidates(points[l, rows]), dim=-1) @ query.T
        better = similar > similar.diagonal().unsqueeze(1)
        fractions.append(better.sum(1) / max(len(better) - 1, 1))
    return fractions


def reported_views(held_out: Embedded, unreliable: Tensor, cost: Cost) -> Tensor:
    """Return bool (k,): the views whose unreliable entries are reported.

    Args:
        held_out: embeddings of rows outside the training split.
        unreliable: (k,), the fraction of unreliable entries among the evaluated training entries of each view.
        cost: see `more_similar`.
    """
    points = held_out.embeddings
    assert points is not None
    mask = torch.ones(points.shape[:2], dtype=torch.bool) if held_out.mask is None else held_out.mask
    reported = torch.ones(len(points), dtype=torch.bool)
    for l, pi in enumerate(more_similar(points, mask, cost)):
        if len(pi) >= MIN_ROWS:
            random = 2 * float((pi > 0.5).float().mean())  # q
            between = float(((pi > 0.1) & (pi <= 0.5)).float().mean()) - 0.4 * random  # b
            lower_bound = max(MIN_EXPLAINED * random, between, MIN_UNRELIABLE if between > SEPARATED else 0.0)
            reported[l] = between <= MAX_BETWEEN and float(unreliable[l]) >= lower_bound
    return reported
