"""Variants of M3G by their epsilon: learned with the network, several at once, or moving during training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m3g import _checks
from m3g.losses import M3GLoss, ViewLoss


class VaryingEpsilon(ViewLoss):
    """The divergence gap / epsilon with an epsilon that is a tensor, and so has a gradient.

    The divergence depends on C / epsilon alone, and the circular variance is a square in the vectors: unit vectors
    divided by sqrt(epsilon), at an epsilon of 1, give it together with its gradient in epsilon (Danskin's theorem: that
    of the solution does not count).

    Example:
        >>> import m3g
        >>> x = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> found = VaryingEpsilon().divergence(x, None, torch.tensor(0.1))
        >>> bool(abs(found - m3g.matching_gap(x, epsilon=0.1) / 0.1) < 1e-3)
        True
    """

    takes_batches = True
    visits_all_tuples = True

    def __init__(self) -> None:
        super().__init__()
        self.gap = M3GLoss(1.0, normalize=False)

    def divergence(self, views: Tensor, mask: Tensor | None, epsilon: Tensor) -> Tensor:
        points = _checks.masked_and_scaled(views, mask, normalize=True) / epsilon.sqrt()
        return self.gap(points, mask=mask)


class Learned(VaryingEpsilon):
    """epsilon = floor + exp(RATE s), with s learned; it starts at 0.1 or twice the floor."""

    RATE = 10.0  # 200 small steps of Adam would hardly move s alone

    def __init__(self, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.exponent = nn.Parameter(torch.tensor(math.log(max(0.1, 2 * floor) - floor) / self.RATE))

    def epsilon(self) -> Tensor:
        return self.floor + (self.RATE * self.exponent).exp()

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        return self.divergence(views, mask, self.epsilon())


class Several(VaryingEpsilon):
    """The mean of the divergences at several epsilons."""

    def __init__(self, epsilons: Sequence[float]) -> None:
        super().__init__()
        self.epsilons = tuple(epsilons)

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        parts = [self.divergence(views, mask, views.new_tensor(epsilon)) for epsilon in self.epsilons]
        return torch.stack(parts).mean(0)


class Annealed(VaryingEpsilon):
    """epsilon goes from the first value to the last by equal ratios, one per call."""

    def __init__(self, ends: Sequence[float], steps: int) -> None:
        super().__init__()
        self.ends, self.steps, self.calls = tuple(ends), steps, 0

    def epsilon(self) -> float:
        first, last = self.ends
        return float(first * (last / first) ** min(self.calls / max(self.steps - 1, 1), 1.0))

    def compute(self, views: Tensor, mask: Tensor | None, teacher: Tensor | None = None) -> Tensor:
        value = self.divergence(views, mask, views.new_tensor(self.epsilon()))
        self.calls += 1
        return value
