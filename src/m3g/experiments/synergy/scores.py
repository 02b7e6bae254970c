"""Scores of tuples, by which the last view of an object is retrieved from the other two.

Losses differ in the tuples that they favour, so each run is tested with the score that is best on its validation rows.
A score is a function of the embeddings a and b (n, d) of the first two views and of candidates c for the last view:
(m, d), common to all rows, or (n, m, d), separate for each row. It returns (n, m).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor, Tensor], Tensor]


def mean_score(first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
    """Return ⟨a + b, c⟩, the score of the circular variance and of pairwise losses."""
    return _products(first + second, candidates)


def product_score(first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
    """Return Σ_j a[j] b[j] c[j], the score of the product cost and of Symile."""
    return _products(first * second, candidates)


def split_score(first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
    """Return a weighted sum of the mean score on the first half of the dimensions and the product score on the second.

    Each half is normalised to unit length.
    """
    half = first.shape[-1] // 2
    low, high = (
        [torch.nn.functional.normalize(part[..., where], dim=-1) for part in (first, second, candidates)]
        for where in (slice(0, half), slice(half, None))
    )
    # For three views, minus the circular variance is 2/9 ⟨a + b, c⟩ plus terms without c, and minus the product cost is
    # sqrt(d) Σ_j a[j] b[j] c[j].
    return 2 / 9 * mean_score(*low) + (first.shape[-1] - half) ** 0.5 * product_score(*high)


def volume_score(first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
    """Return minus the squared volume of the parallelotope spanned by three unit vectors (GRAM)."""
    a, b, c = _cosines(first, second, candidates)
    return -(1 + 2 * a * b * c - a**2 - b**2 - c**2)


def area_score(first: Tensor, second: Tensor, candidates: Tensor) -> Tensor:
    """Return minus 16 times the squared area of the triangle of three unit vectors (TRIANGLE), by Heron's formula."""
    a, b, c = (2 - 2 * cosine for cosine in _cosines(first, second, candidates))
    return -(2 * (a * b + b * c + c * a) - a**2 - b**2 - c**2)


def _products(query: Tensor, candidates: Tensor) -> Tensor:
    """Return inner products (n, m) of queries (n, d) with candidates (m, d), or with those of each query (n, m, d)."""
    return query @ candidates.T if candidates.ndim == 2 else torch.einsum("nd,nmd->nm", query, candidates)


def _cosines(first: Tensor, second: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (first * second).sum(-1, keepdim=True), _products(first, candidates), _products(second, candidates)


SCORES: dict[str, Score] = {
    "mean": mean_score,
    "product": product_score,
    "split": split_score,
    "volume": volume_score,
    "area": area_score,
}


def recall(score: Score, views: list[Tensor], label: Tensor | None) -> float:
    """Return the fraction of rows whose last view is retrieved from the first two, among the last views of all rows.

    With labels, any candidate of the same class is correct; without labels, only that of the row itself.

    Example:
        >>> views = [torch.ones(2, 2), torch.eye(2), torch.eye(2)]
        >>> recall(product_score, views, None)
        1.0
    """
    first, second, last = views
    best = score(first, second, last).argmax(1)
    correct = best == torch.arange(len(best)) if label is None else label[best] == label
    return float(correct.float().mean())


def selected(score: Score, views: list[Tensor], others: Tensor) -> float:
    """Return the fraction of rows whose last view scores higher than the candidates `others` (n, m, d) of the row."""
    first, second, last = views
    scores = score(first, second, torch.cat([last.unsqueeze(1), others], 1))
    return float((scores.argmax(1) == 0).float().mean())
