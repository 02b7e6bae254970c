"""Sources of random numbers for one solve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


class Draws(ABC):
    """Source of random numbers."""

    device: torch.device

    @abstractmethod
    def uniform(self, *shape: int) -> Tensor:
        """Return uniform random numbers in [0, 1), in float32."""

    @abstractmethod
    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Return standard normal random numbers."""

    def order(self, *shape: int) -> Tensor:
        """Return random permutations along the last axis."""
        return self.uniform(*shape).argsort(-1)

    def tuples(self, sizes: list[int] | tuple[int, ...], *shape: int) -> Tensor:
        """Return tuples (*shape, k), uniform over the points of each view."""
        parts = [(self.uniform(*shape) * n).long().clamp_(max=n - 1) for n in sizes]
        return torch.stack(parts, -1)


@dataclass(frozen=True)
class DefaultDraws(Draws):
    """Draws from torch's default generator, the only one available to compiled code."""

    device: torch.device

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device, dtype=torch.float32)

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class GeneratorDraws(Draws):
    """Draws from a given generator."""

    device: torch.device
    generator: torch.Generator

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=torch.float32)

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=dtype)


def seeded_draws(seed: int, device: torch.device) -> GeneratorDraws:
    """Return the draws of a generator with this seed.

    The seed is hashed, because the samples must be independent of the views. Otherwise, views drawn after
    `torch.manual_seed(seed)` could consist of the same random numbers as the samples.
    """
    hashed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    return GeneratorDraws(device, torch.Generator(device=device).manual_seed(hashed))
