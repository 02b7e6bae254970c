"""Cross-check of a result against an independent validation sample.

At the potentials h of a list, the true kernel has some mass Z, which would equal the mass a of the weights if the list
were the kernel. A second sample, independent of the list, estimates Z around tuples found by Gibbs steps under h, from
random tuples and from the coupling. Tuples that the list missed are not limited by h, so these steps find them, and the
new mass differs from a.

If the list is correct up to noise, with a bias b of the value / eps, log(Z / a) is 2b / a on average: the value on the
list is too high by b, and the lower bound Σ⟨h, a⟩ - a log(Z / a) on the true value too low by b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.solvers.sampled.ascent import ListPoint
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import SamplingError
from m3g.solvers.sampled.gibbs_search import POWERS, moved
from m3g.solvers.sampled.interfaces import Build, Listed
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import chunk_rows
from m3g.solvers.sampled.tuple_kernel import tuple_keys
from m3g.solvers.shared.processes import read

# Draws of the list per draw of the validation sample; the variance of its mass is larger by the same factor.
FRESH_PART = 4
# Standard deviations of the discrepancy beyond which more rounds follow.
MOST_DEVIATIONS = 3.0


@dataclass(frozen=True)
class Check:
    """Result of the validation sample: tuples (b, c, k) with mass, and a log(Z / a) (b,)."""

    tuples: Tensor
    excess: Tensor

    def difference(self, error: SamplingError) -> Tensor:
        """Return the discrepancy of value / eps: (b,)."""
        return (self.excess - 2 * error.bias).abs()

    def deviations(self, error: SamplingError) -> Tensor:
        """Return the discrepancy in units of its standard deviation, if the error estimate is correct: (b,)."""
        allowed = ((1 + FRESH_PART) * error.value.square() + error.bias.square()).sqrt()
        return self.difference(error) / allowed.clamp_min(torch.finfo(allowed.dtype).tiny)

    def doubtful(self, error: SamplingError) -> bool:
        return not read(self.deviations(error)) <= MOST_DEVIATIONS

    def contradiction(self, error: SamplingError) -> Tensor:
        """Return the discrepancy if it is significant, otherwise 0: (b,)."""
        return torch.where(self.deviations(error) <= MOST_DEVIATIONS, 0.0, self.difference(error))


def fresh_check(
    build: Build,
    listed: Listed,
    log_kernel: LogKernel,
    point: ListPoint,
    count: int,
    each: int,
    draws: Draws,
    anchors: Tensor,
    powers: Sequence[float] = POWERS,
) -> Check:
    """Draw a list around `count` tuples found by Gibbs steps, at the potentials of a solved one.

    If both are lists of tuples, the mass is at least that of all distinct tuples in them: for a sharp problem, whose
    mass is on few tuples, this is more accurate than the estimate by importance weights.
    """
    b = point.target.shape[0]
    starts = [draws.tuples(log_kernel.sizes, b, count - count // 2), point.coupling.draw(count // 2, draws)]
    tuples = moved(log_kernel, torch.cat(starts, 1), point.log_scaling, draws, powers)
    mass = point.target[:, : log_kernel.sizes[0]].sum(1, keepdim=True)
    fresh = build(log_kernel, tuples, point.log_scaling, each, draws, anchors).based(point.log_scaling)
    log_excess = -fresh.at(point.log_scaling, mass).log_factor
    if listed.tuples is not None and fresh.tuples is not None:
        known = log_mass(log_kernel, torch.cat([listed.tuples, fresh.tuples], 1), point.log_scaling)
        log_excess = torch.maximum(log_excess, known - mass.log())
    return Check(tuples, (mass * log_excess).squeeze(1))


def log_mass(log_kernel: LogKernel, tuples: Tensor, log_scaling: Tensor) -> Tensor:
    """log Σ exp(⊕h + L) over the distinct tuples (b, s, k), at log scalings h (b, N): (b, 1)."""
    open_view = min(range(len(log_kernel.sizes)), key=lambda l: log_kernel.sizes[l])
    # Numbers per tuple: a row of the conditional, and two feature vectors while the other views are combined.
    numbers = log_kernel.sizes[open_view] + 2 * log_kernel.features
    row_bytes = tuples.shape[0] * log_kernel.itemsize * numbers
    step = chunk_rows(tuples.shape[1], row_bytes, tuples.device)
    logs = torch.cat(
        [
            log_kernel.rest(open_view, some)
            + log_kernel.conditional(open_view, some).gather(2, some[..., open_view, None]).squeeze(2)
            for some in tuples.split(step, 1)
        ],
        1,
    )
    for scaling, points in zip(log_scaling.split(list(log_kernel.sizes), 1), tuples.unbind(-1)):
        logs = logs + scaling.gather(1, points)
    keys, order = tuple_keys(tuples).sort(1)
    repeated = torch.zeros_like(keys, dtype=torch.bool)
    repeated[:, 1:] = keys[:, 1:] == keys[:, :-1]
    return logs.gather(1, order).masked_fill(repeated, -torch.inf).logsumexp(1, keepdim=True)
