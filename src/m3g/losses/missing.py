"""Imputation of missing points in the matching gap."""

from __future__ import annotations

import torch
from torch import Tensor

# Below this length the direction of a mean is noise, and the imputed point tends to the zero vector.
SMALLEST_MEAN = 1e-3


def filled(points: Tensor, mask: Tensor) -> Tensor:
    """Replace missing points by the mean of the present views of their object, without gradient: (..., k, n, d).

    The mean is scaled to the mean length of these views, which is 1 on the sphere. A zero vector would weaken the
    contrast of the whole tuple: with p of k views present, the temperature would be (k - 1) / (p - 1) times as high.
    `benchmarks/missing.py` compares the alternatives.

    Args:
        points: (..., k, n, d), zero where missing.
        mask: bool (..., k, n), False for missing points.

    Example:
        >>> points = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]])
        >>> filled(points, torch.tensor([[True], [True], [False]]))[2]
        tensor([[0.7071, 0.7071]])
    """
    constant = points.detach()
    total = constant.sum(-3, keepdim=True)
    lengths = torch.linalg.vector_norm(constant, dim=-1, keepdim=True).sum(-3, keepdim=True)
    count = mask.sum(-2, keepdim=True).clamp(min=1).unsqueeze(-1)
    mean = torch.nn.functional.normalize(total / count, dim=-1, eps=SMALLEST_MEAN) * (lengths / count)
    return torch.where(mask.unsqueeze(-1), points, mean)
