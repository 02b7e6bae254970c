"""A linear probe in closed form: ridge regression on the classes, its strength chosen by leaving one row out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from m3g import _checks

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)


class RidgeProbe:
    """Scores of the classes that are linear in the features; fitted in one singular value decomposition.

    With standardised features X (n, d) and centred classes Y (n, c), W = (X'X + s n I)^-1 X'Y for the strength s whose
    squared error is least when every row in turn is left out, which the same decomposition gives for all s.

    Args:
        features: (n, d).
        labels: (n,), codes or any other whole numbers.

    Example:
        >>> x = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
        >>> probe = RidgeProbe(x, (x[:, 0] > 0).long())
        >>> probe.accuracy(x, (x[:, 0] > 0).long()) > 0.9
        True
    """

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        if features.ndim != 2 or labels.shape != features.shape[:1] or len(labels) < 2:
            raise ValueError(
                "features must be (n, d) with one label per row, "
                f"got {_checks.shape_of(features)} with {_checks.shape_of(labels)} labels."
            )
        _checks.finite_tensor("features", features)
        self.classes, codes = torch.unique(labels, return_inverse=True)
        x = features.double()
        self.mean, deviation = x.mean(0), x.std(0, correction=0)
        self.scale = torch.where(deviation > 0, deviation, 1.0)
        y = one_hot(codes, len(self.classes)).double()
        self.offset = y.mean(0)
        left, values, right = torch.linalg.svd((x - self.mean) / self.scale, full_matrices=False)
        target = left.T @ (y - self.offset)
        best = (float("inf"), STRENGTHS[0])
        for strength in STRENGTHS:
            shrink = values**2 / (values**2 + strength * len(x))
            error = y - self.offset - left @ (shrink[:, None] * target)
            leverage = (left**2 @ shrink) + 1 / len(x)
            best = min(best, (float((error / (1 - leverage).clamp(min=1e-6)[:, None]).square().sum()), strength))
        self.strength = best[1]
        self.weight = right.T @ ((values / (values**2 + self.strength * len(x)))[:, None] * target)

    def predict(self, features: Tensor) -> Tensor:
        """The class of every row (n,)."""
        scores = (features.double() - self.mean) / self.scale @ self.weight + self.offset
        return self.classes[scores.argmax(1)]

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return float((self.predict(features) == labels).double().mean())
