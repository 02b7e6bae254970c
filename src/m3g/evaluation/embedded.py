"""Points as a network sees them, which an evaluation works on, and what is often made of their views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize


@dataclass
class Embedded:
    """n points as a network sees them: what `evaluate` works on.

    Attributes:
        embeddings: (k, n, d) after the projectors; None to judge `features` alone.
        features: k tensors (n, width) before them; the widths may differ.
        labels: (n,), None for unlabelled data.
        mask: bool (k, n), true where a point has a view; None if all have.
        index: (n,), the rows of the user's files, where they are known.
    """

    embeddings: Tensor | None = None
    features: Sequence[Tensor] | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None
    index: Tensor | None = None

    def only(self, views: Sequence[int]) -> Embedded:
        """These views alone, and the points that have one of them.

        Example:
            >>> points = Embedded(torch.zeros(3, 2, 4), mask=torch.tensor([[1, 0], [1, 0], [0, 1]]).bool())
            >>> points.only([0, 1]).embeddings.shape
            torch.Size([2, 1, 4])
        """
        chosen = list(views)
        mask = None if self.mask is None else self.mask[chosen]
        rows = slice(None) if mask is None else mask.any(0)
        return Embedded(
            None if self.embeddings is None else self.embeddings[chosen][:, rows],
            None if self.features is None else [self.features[l][rows] for l in chosen],
            None if self.labels is None else self.labels[rows],
            None if mask is None else mask[:, rows],
            None if self.index is None else self.index[rows],
        )


def mean_of_views(embeddings: Tensor, mask: Tensor | None = None) -> Tensor:
    """One vector per point, (n, d): the mean of its present views' unit vectors."""
    units = normalize(embeddings, dim=-1)
    if mask is None:
        return units.mean(0)
    weight = mask.to(units).unsqueeze(-1)
    return (units * weight).sum(0) / weight.sum(0)


def side_by_side(features: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """All views' features in one row per point, absent ones zero."""
    parts = [part.flatten(1) for part in features]
    if mask is not None:
        parts = [torch.where(mask[l].unsqueeze(-1), part, 0.0) for l, part in enumerate(parts)]
    return torch.cat(parts, dim=1)


def off_diagonal_mean(matrix: Tensor) -> float:
    away = ~torch.eye(len(matrix), dtype=torch.bool)
    return float(matrix[away].mean())
