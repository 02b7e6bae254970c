"""Proposal of the sampled solver: tuples drawn from a mixture with known density.

Each component belongs to a tuple c, an estimate of where the coupling has mass, and redraws every view given the other
entries of c: q_c(t) = Π_m p_m(t_m | c without m), where p_m is the exact conditional at the current potentials. If c
was drawn from the coupling, each view of the draw has the marginal of the coupling.

Half of the components are warmer: their conditionals are raised to the power WARM. They reach tuples several steps from
c, which the other half rarely draws, and bound the importance weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel, pick
from m3g.solvers.sampled.recomputed_rows import Rows, chunk_rows, rows_at_once
from m3g.solvers.sampled.tuple_kernel import TupleList, sampled_list

# In nearly solved batches, nearly all draws at power 1 are true tuples; 0.5 at least halves the error.
WARM = 0.5
# For a cost with local maxima, one component in this many draws all points uniformly. It reaches tuples between the
# maxima, so that missed tuples increase the estimated error.
UNIFORM = 4


class Mixture:
    """Components at the tuples `centres` (b, r, k), at log scalings (b, N)."""

    def __init__(self, log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor):
        self.centres = centres
        b, r, self.k = centres.shape
        row_bytes = b * log_kernel.itemsize * (sum(log_kernel.sizes) + log_kernel.features)
        step = rows_at_once(r, row_bytes=row_bytes, total_bytes=row_bytes * r, device=centres.device)
        self.components = Rows(partial(component_logs, log_kernel, centres, log_scaling), count=r, step=step)

    def draw(self, each: int, draws: Draws) -> Tensor:
        """Draw `each` tuples (a multiple of 2) from every component: (b, r · each, k), in two independent halves.

        Within a half the draws of a component are stratified over the distribution of each view, in random order.
        """
        b, r, k = self.centres.shape
        levels = [self._levels(each // 2, draws) for _ in range(k)]
        out = self.centres.new_empty(b, r, each, k)
        for rows, logs in self.components:
            for m, log in enumerate(logs):
                steps = log.exp().cumsum(2)
                level = levels[m][:, rows].to(steps.dtype) * steps[..., -1:]
                out[:, rows, :, m] = torch.searchsorted(steps, level).clamp_(max=log.shape[2] - 1)
        # Halves first, so that a prefix of the draws consists of whole halves.
        return out.transpose(1, 2).reshape(b, r * each, k)

    def _levels(self, per_half: int, draws: Draws) -> Tensor:
        """Return numbers between 0 and 1, stratified within each half: (b, r, 2 · per_half)."""
        shape = (*self.centres.shape[:2], 2, per_half)
        noise = draws.uniform(*shape)
        order = draws.order(*shape)
        return ((order + noise) / per_half).flatten(2)

    def log_density(self, tuples: Tensor) -> Tensor:
        """log q of a tuple's entries without view l, for every l: (b, s, k)."""
        b, r = self.centres.shape[:2]
        total: Tensor | None = None
        for _, logs in self.components:
            across = [log.transpose(1, 2).contiguous() for log in logs]
            # Draws x components, once for every view and for their sum.
            row_bytes = b * logs[0].shape[1] * (self.k + 2) * logs[0].element_size()
            step = chunk_rows(tuples.shape[1], row_bytes, tuples.device)
            here = torch.cat([_log_sums(across, chunk) for chunk in tuples.split(step, 1)], 1)
            total = here if total is None else torch.logaddexp(total, here)
        assert total is not None
        return total - math.log(r)


def tuple_list(
    log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, each: int, draws: Draws, anchors: Tensor
) -> TupleList:
    """Return a list of the anchors and `each` tuples from the component of every centre (b, r, k)."""
    mixture = Mixture(log_kernel, centres, log_scaling)
    tuples = mixture.draw(each, draws)
    log_counts = mixture.log_density(torch.cat([anchors, tuples], 1)) + math.log(tuples.shape[1])
    return sampled_list(log_kernel, tuples, log_counts, anchors)


def component_logs(log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, rows: slice) -> list[Tensor]:
    """log p_m(i | c without m) for some components c and every view m: k tables (b, r, n_m)."""
    logs = []
    for m, scaling in enumerate(log_scaling.split(list(log_kernel.sizes), 1)):
        logits = log_kernel.conditional(m, centres[:, rows])
        logits += scaling.to(logits.dtype).unsqueeze(1)
        # Every other component, independent of the first row.
        logits[:, rows.start % 2 :: 2] *= WARM
        if log_kernel.has_maxima:
            logits[:, -rows.start % UNIFORM :: UNIFORM] = 0.0
        logs.append(logits.log_softmax(2))
    return logs


def _log_sums(across: list[Tensor], tuples: Tensor) -> Tensor:
    """log Σ_c Π_{m ≠ l} p_m(t_m | c) from tables (b, n_m, r), for every l: (b, s, k)."""
    picked = [pick(table, tuples[..., m]) for m, table in enumerate(across)]
    total = picked[0].clone()
    for own in picked[1:]:
        total += own
    return torch.stack([own.neg_().add_(total).logsumexp(2) for own in picked], -1)


def true_tuples(sizes: Sequence[int], count: int, b: int, draws: Draws) -> Tensor:
    """Return (j, …, j) for as many different j as possible: (b, count, k)."""
    order = draws.order(min(sizes))
    chosen = order[torch.arange(count, device=draws.device) % len(order)]
    return chosen.reshape(1, -1, 1).expand(b, -1, len(sizes))


def anchors_of(target: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return tuples (b, N, k) that support a coupling with marginals `target` (b, N).

    Point i of view l covers the interval of [0, a] between successive cumulative weights of its view. Each interval
    between neighbouring end points of all views is one tuple.
    """
    ends = [part.cumsum(1) for part in target.split(list(sizes), 1)]
    ends = [end / end[:, -1:] for end in ends]
    steps = torch.cat(ends, 1).sort(1).values
    middles = (steps + torch.cat([torch.zeros_like(steps[:, :1]), steps[:, :-1]], 1)) / 2
    return torch.stack([torch.searchsorted(end, middles).clamp_(max=end.shape[1] - 1) for end in ends], -1)
