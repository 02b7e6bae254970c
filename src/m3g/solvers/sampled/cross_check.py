"""Cross-check of a result against an independent validation sample.

Let h be the log scalings that solve the dual of a sampled kernel (the first sample), and Z the mass of the true kernel
at h. If the first sample represented the kernel exactly, Z would equal the required mass M. An independent validation
sample estimates Z from draws around tuples that Gibbs chains reach at h. The chains start at random tuples and at draws
from the coupling. A tuple of large mass that the first sample missed attracts them (gibbs_search.py), so the estimate
of Z exceeds M.

Let B be the bias of the value of the sampled kernel, in units of epsilon. If this kernel is correct up to noise, its
value Σ_l ⟨h_l, a_l⟩ - M is too high by B, and the lower bound Σ_l ⟨h_l, a_l⟩ - M - M log(Z / M) on the true value is
too low by B, where a_l are the weights. Therefore M log(Z / M) is 2B on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.solvers.sampled.ascent import SampledPoint
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import SamplingError, mass_variance
from m3g.solvers.sampled.gibbs_search import POWERS, gibbs_tuples, random_starts
from m3g.solvers.sampled.interfaces import Build, SampledKernel
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import chunk_rows
from m3g.solvers.sampled.tuple_kernel import tuple_keys
from m3g.solvers.shared.processes import read

# Size of the first sample relative to the validation sample, whose mass has a variance larger by the same factor. At
# low ranks, the minimum number of chains makes the validation sample larger.
VALIDATION_RATIO = 4
# Number of standard deviations beyond which a discrepancy is significant.
MAX_DEVIATIONS = 3.0


@dataclass(frozen=True)
class CrossCheck:
    """Result of a validation sample.

    Attributes:
        tuples: (b, c, k), the end points of the Gibbs chains.
        excess: (b,), M log(Z / M), see the module docstring.
        variance: (b,), the variance of the mass of the validation sample, rescaled to the size of the first sample. If
            the first sample missed tuples of large mass, the variance of its own mass is too small.
    """

    tuples: Tensor
    excess: Tensor
    variance: Tensor

    def discrepancy(self, error: SamplingError) -> Tensor:
        """Return the discrepancy |excess - 2B| of the value, in units of epsilon: (b,)."""
        return (self.excess - 2 * error.bias).abs()

    def deviations(self, error: SamplingError) -> Tensor:
        """Return the discrepancy in units of the standard deviation expected from the error estimate: (b,)."""
        allowed = ((1 + VALIDATION_RATIO) * error.value.square() + error.bias.square()).sqrt()
        return self.discrepancy(error) / allowed.clamp_min(torch.finfo(allowed.dtype).tiny)

    def is_significant(self, error: SamplingError) -> bool:
        """Return whether any discrepancy of the batch exceeds `MAX_DEVIATIONS`, or is NaN."""
        return not read(self.deviations(error)) <= MAX_DEVIATIONS

    def significant_discrepancy(self, error: SamplingError) -> Tensor:
        """Return the discrepancy if it is significant, otherwise 0: (b,)."""
        return torch.where(self.deviations(error) <= MAX_DEVIATIONS, 0.0, self.discrepancy(error))


def cross_check(
    build: Build,
    kernel: SampledKernel,
    log_kernel: LogKernel,
    point: SampledPoint,
    count: int,
    per_centre: int,
    draws: Draws,
    anchors: Tensor,
    powers: Sequence[float] = POWERS,
) -> CrossCheck:
    """Draw a validation sample around the end points of `count` Gibbs chains, at the solution of a sampled kernel.

    If both samples are lists of tuples, Z is at least the mass of all distinct tuples in them. For a sharp coupling,
    which has its mass on few tuples, this bound is more accurate than the estimate by importance weights.

    Args:
        build: function that draws the validation sample; the one that drew `kernel`.
        kernel: the sampled kernel.
        log_kernel: the true kernel.
        point: the solution of the dual of `kernel`.
        count: number of Gibbs chains. Half of them start at random tuples, half at draws from the coupling.
        per_centre: number of draws around each tuple.
        draws: source of random numbers.
        anchors: (b, c, k), tuples that the validation sample must contain.
        powers: powers of the conditional distributions in the sweeps of Gibbs sampling.
    """
    starts = [
        random_starts(log_kernel, point.log_scaling, count - count // 2, draws),
        point.coupling.draw(count // 2, draws),
    ]
    tuples = gibbs_tuples(log_kernel, torch.cat(starts, 1), point.log_scaling, draws, powers)
    mass = point.target[:, : log_kernel.sizes[0]].sum(1, keepdim=True)
    validation = build(log_kernel, tuples, point.log_scaling, per_centre, draws, anchors).with_base(point.log_scaling)
    coupling = validation.coupling_at(point.log_scaling, mass)
    log_excess = -coupling.log_factor
    weights = coupling.sample_weights()
    size_ratio = weights.shape[1] / point.coupling.sample_weights().shape[1]
    if kernel.tuples is not None and validation.tuples is not None:
        distinct = log_mass(log_kernel, torch.cat([kernel.tuples, validation.tuples], 1), point.log_scaling)
        log_excess = torch.maximum(log_excess, distinct - mass.log())
    variance = mass_variance(weights, per_centre) * size_ratio
    return CrossCheck(tuples, (mass * log_excess).squeeze(1), variance)


def log_mass(log_kernel: LogKernel, tuples: Tensor, log_scaling: Tensor) -> Tensor:
    """Return the log mass log Σ_t exp(Σ_l h_l[t_l] + L(t)) of the distinct tuples t among (b, s, k): (b, 1)."""
    open_view = min(range(len(log_kernel.sizes)), key=lambda l: log_kernel.sizes[l])
    # Numbers per tuple: a row of the conditional, and two feature vectors while the other views are combined.
    numbers = log_kernel.sizes[open_view] + 2 * log_kernel.num_temporaries
    row_bytes = tuples.shape[0] * log_kernel.itemsize * numbers
    step = chunk_rows(tuples.shape[1], row_bytes, tuples.device)
    logs = torch.cat(
        [
            log_kernel.rest(open_view, chunk)
            + log_kernel.conditional(open_view, chunk).gather(2, chunk[..., open_view, None]).squeeze(2)
            for chunk in tuples.split(step, 1)
        ],
        1,
    )
    for scaling, points in zip(log_scaling.split(list(log_kernel.sizes), 1), tuples.unbind(-1)):
        logs = logs + scaling.gather(1, points)
    keys, order = tuple_keys(tuples).sort(1)
    repeated = torch.zeros_like(keys, dtype=torch.bool)
    repeated[:, 1:] = keys[:, 1:] == keys[:, :-1]
    return logs.gather(1, order).masked_fill(repeated, -torch.inf).logsumexp(1, keepdim=True)
