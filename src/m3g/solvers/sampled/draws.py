"""Random numbers of one solve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


class Draws(ABC):
    """Where the rounds take their random numbers from."""

    device: torch.device

    @abstractmethod
    def uniform(self, *shape: int) -> Tensor:
        """Numbers from [0, 1), in float32."""

    @abstractmethod
    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Standard normal numbers."""

    def order(self, *shape: int) -> Tensor:
        """Random orders along the last axis."""
        return self.uniform(*shape).argsort(-1)

    def tuples(self, sizes: list[int] | tuple[int, ...], *shape: int) -> Tensor:
        """Tuples (*shape, k), all points of a view being equally likely."""
        parts = [(self.uniform(*shape) * n).long().clamp_(max=n - 1) for n in sizes]
        return torch.stack(parts, -1)


@dataclass(frozen=True)
class CommonDraws(Draws):
    """From torch's own generator: the one that compiled code knows."""

    device: torch.device

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, device=self.device)

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class GeneratorDraws(Draws):
    """From a generator of the user's, or one with a seed."""

    device: torch.device
    generator: torch.Generator

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device)

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=dtype)


def seeded_draws(seed: int, device: torch.device) -> GeneratorDraws:
    """The draws of a seed.

    The seed is mixed first: views that were themselves drawn with `torch.manual_seed(seed)` would be made of the very
    numbers that sample them, and samples that depend on the views are no samples of the kernel.
    """
    mixed = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    return GeneratorDraws(device, torch.Generator(device=device).manual_seed(mixed))
