"""Imputation of missing points in the matching gap."""

from __future__ import annotations

import torch
from torch import Tensor

# Length below which the direction of a mean is not meaningful. A shorter mean is divided by this constant instead of
# its length, so that the imputed point tends to zero with the mean.
MIN_MEAN_LENGTH = 1e-3


def imputed(points: Tensor, mask: Tensor) -> Tensor:
    """Replace missing points by the mean of the present views of their object.

    The mean receives no gradient. It is scaled to the mean length of the present views, which is 1 for unit vectors.
    With zero vectors instead, the differences between costs would be smaller: for the circular variance with p of k
    views present, the effect is that of a temperature (k - 1) / (p - 1) times as high. `benchmarks/missing.py` compares
    the alternatives.

    Args:
        points: (..., k, n, d), zero where missing.
        mask: bool (..., k, n), False for missing points.

    Returns:
        The points (..., k, n, d), with missing points replaced.

    Example:
        >>> points = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]])
        >>> imputed(points, torch.tensor([[True], [True], [False]]))[2]
        tensor([[0.7071, 0.7071]])
    """
    detached = points.detach()
    total = detached.sum(-3, keepdim=True)
    lengths = torch.linalg.vector_norm(detached, dim=-1, keepdim=True).sum(-3, keepdim=True)
    count = mask.sum(-2, keepdim=True).clamp(min=1).unsqueeze(-1)
    mean = torch.nn.functional.normalize(total / count, dim=-1, eps=MIN_MEAN_LENGTH) * (lengths / count)
    return torch.where(mask.unsqueeze(-1), points, mean)
