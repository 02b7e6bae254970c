"""Accuracy of the best polymatching of a batch."""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.costs import CircularVariance
from m3g.solvers import solve

log = logging.getLogger(__name__)
MAX_TUPLES = 2e7


def matching_batch(k: int, n: int, batch_size: int | None = None) -> int:
    """Return the number of objects per batch, at most n.

    It is `batch_size` if given, and otherwise 16, or fewer (but at least 2) so that its k-th power is at most
    MAX_TUPLES.
    """
    if batch_size is None:
        batch_size = max(2, min(16, int(MAX_TUPLES ** (1 / k))))
    return min(_checks.positive_int("batch_size", batch_size), n)


def polymatching_accuracy(
    embeddings: Tensor,
    *,
    mask: Tensor | None = None,
    batch_size: int | None = None,
    epsilon: float = 0.02,
    seed: int = 0,
) -> float:
    """Return the fraction of objects whose points are matched with each other in every pair of views.

    It is the mean of `matched_objects` over the objects that are not skipped.

    Example:
        >>> views = torch.randn(1, 32, 8, generator=torch.Generator().manual_seed(0)).expand(3, 32, 8)
        >>> polymatching_accuracy(views)
        1.0
    """
    matched = matched_objects(embeddings, mask=mask, batch_size=batch_size, epsilon=epsilon, seed=seed)
    return float(matched.nanmean())


def matched_objects(
    embeddings: Tensor,
    *,
    mask: Tensor | None = None,
    batch_size: int | None = None,
    epsilon: float = 0.02,
    seed: int = 0,
) -> Tensor:
    """Return 1 for each object (n,) whose points are matched with each other, otherwise 0, and NaN if it is skipped.

    Objects are divided into random batches of `batch_size`, and the best polymatching of each batch is computed with
    the circular variance as cost. Object i is matched if the largest entry in row i of the pair marginal is entry i,
    for every ordered pair of views. Objects with missing views are skipped, and so is an incomplete last batch.

    Args:
        embeddings: (k, n, d).
        mask: bool (k, n), True where an object has a view.
        batch_size: number of objects per batch; larger batches are harder to match. Default: 16, and fewer for k > 6,
            because the complexity is batch_size^k.
        epsilon: weight of the entropy; small, so that the coupling is close to a matching.
        seed: seed of the random batches.
    """
    embeddings = _checks.aligned_views(embeddings, name="embeddings")
    mask = _checks.presence(mask, embeddings)
    matched = torch.full((embeddings.shape[1],), torch.nan, dtype=torch.float64)
    complete = torch.arange(len(matched)) if mask is None else mask.all(0).nonzero().flatten().cpu()
    embeddings = embeddings[:, complete.to(embeddings.device)]
    k, n = embeddings.shape[:2]
    size = matching_batch(k, n, batch_size)
    if batch_size == 1:
        raise ValueError("batch_size must be at least 2, got 1.")
    if size < 2:
        raise ValueError(f"embeddings must have at least 2 objects with all views, got {n}.")
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    cost = CircularVariance()
    num_batches, num_unconverged = 0, 0
    for rows in order[: n - n % size].split(size):
        views = normalize(embeddings[:, rows.to(embeddings.device)], dim=-1)
        solution = solve(cost(views), epsilon=epsilon)
        num_unconverged += not solution.converged
        truth = torch.arange(size, device=views.device)
        is_correct = torch.ones(size, dtype=torch.bool, device=views.device)
        for l in range(k):
            for m in range(l + 1, k):
                pair = solution.pair_marginal(l, m)
                is_correct &= (pair.argmax(1) == truth) & (pair.argmax(0) == truth)
        matched[complete[rows]] = is_correct.double().cpu()
        num_batches += 1
    if num_unconverged:
        log.warning(
            "%d of %d polymatchings did not converge at epsilon = %g: the accuracy is approximate; increase epsilon.",
            num_unconverged, num_batches, epsilon,
        )  # fmt: skip
    return matched
