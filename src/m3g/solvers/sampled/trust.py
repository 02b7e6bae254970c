"""Does a fresh sample say the same? The check of an answer against what its own samples may have missed.

At the potentials h that a list gave, the true kernel has some mass Z, which would be the mass a of the weights if the
list were the kernel. A second sample, independent of the list, estimates Z: around tuples to which Gibbs steps under h
led, from random tuples and from the coupling. What the list missed is not held down by h, so these steps find it, and
the fresh mass is far from a.

If the list is right but for its noise, with a bias b of the value / eps, log(Z / a) is 2b / a on average: the value on
the list is too high by b, and the bound Σ⟨h, a⟩ - a log(Z / a) that h gives on the true value too low by b.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.solvers.sampled.ascent import ListPoint
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import SamplingError
from m3g.solvers.sampled.listed import Build
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.search import moved

# A fresh sample has one draw for so many of the list: its mass has so many times the variance.
FRESH_PART = 4
# Standard deviations of the difference past which more rounds follow.
MOST_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Check:
    """What a fresh sample found: tuples (b, c, k) that carry mass, and a log(Z / a) (b,)."""

    tuples: Tensor
    excess: Tensor

    def difference(self, error: SamplingError) -> Tensor:
        """By how much value / eps is contradicted: (b,)."""
        return (self.excess - 2 * error.bias).abs()

    def deviations(self, error: SamplingError) -> Tensor:
        """The difference in its standard deviations, if the error is right: (b,)."""
        allowed = ((1 + FRESH_PART) * error.value.square() + error.bias.square()).sqrt()
        return self.difference(error) / allowed.clamp_min(torch.finfo(allowed.dtype).tiny)

    def doubtful(self, error: SamplingError) -> bool:
        return not bool((self.deviations(error) <= MOST_DEVIATIONS).all())


def fresh_check(
    build: Build,
    log_kernel: LogKernel,
    point: ListPoint,
    count: int,
    each: int,
    draws: Draws,
    anchors: Tensor,
) -> Check:
    """A list around `count` tuples that Gibbs steps found, at the potentials of a solved one."""
    b = point.target.shape[0]
    starts = [draws.tuples(log_kernel.sizes, b, count - count // 2), point.coupling.draw(count // 2, draws)]
    tuples = moved(log_kernel, torch.cat(starts, 1), point.log_scaling, draws)
    mass = point.target[:, : log_kernel.sizes[0]].sum(1, keepdim=True)
    fresh = build(log_kernel, tuples, point.log_scaling, each, draws, anchors).based(point.log_scaling)
    excess = -mass * fresh.at(point.log_scaling, mass).log_factor
    return Check(tuples, excess.squeeze(1))
