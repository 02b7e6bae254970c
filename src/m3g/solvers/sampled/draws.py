"""Random numbers of one solve."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count

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
class GeneratorDraws(Draws):
    """From a generator of torch; None is torch's own."""

    device: torch.device
    generator: torch.Generator | None

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device)

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class HashedDraws(Draws):
    """From a hash of (seed, number of the call, place): no state on the device, so that a compiler can take it.

    Example:
        >>> first, again = (HashedDraws(torch.device("cpu"), seed=3).uniform(4) for _ in range(2))
        >>> torch.equal(first, again), bool((first < 1).all())
        (True, True)
    """

    device: torch.device
    seed: int
    calls: count = field(default_factory=count)

    def _bits(self, *shape: int) -> Tensor:
        """Whole numbers below 2^32, by the finaliser of a multiplicative hash in two rounds."""
        place = torch.arange(math.prod(shape), device=self.device)
        start = (self.seed * 0x9E3779B1 + next(self.calls) * 0x85EBCA77) % 2**32
        mixed = _mix(_mix(place + start) + start)
        return mixed.reshape(shape)

    def uniform(self, *shape: int) -> Tensor:
        # 24 bits are what float32 holds: the largest stays below 1.
        return (self._bits(*shape) >> 8).float() * 2.0**-24

    def normal(self, *shape: int, dtype: torch.dtype) -> Tensor:
        # Box and Muller; a number from (0, 1] under the logarithm.
        radius = (1 - self.uniform(*shape)).log().mul(-2).sqrt()
        return (radius * torch.cos(2 * math.pi * self.uniform(*shape))).to(dtype)


def _mix(bits: Tensor) -> Tensor:
    """A permutation of the whole numbers below 2^32 in which every bit of the input changes half of the output."""
    bits = bits & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return bits ^ (bits >> 16)
