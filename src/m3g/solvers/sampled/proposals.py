"""Proposal distribution from which the tuples of a list are drawn: a mixture with known density.

The centre of a component is a tuple c that is likely to have a large mass. The component redraws every view given the
other entries of c, q_c(t) = Π_m p_m(t_m | c without m), where p_m is the exact conditional distribution at the current
potentials. If c is a draw from the coupling, every t_m is distributed as marginal m of the coupling.

In half of the components, the conditional distributions are flattened: raised to the power `WARM_POWER` and normalised.
These components also draw tuples that differ from c in several views, which the other half rarely draws. They thus
bound the importance weights (defensive mixture, :cite:`owen2013`). If the kernel has local maxima besides the true
tuples (`LogKernel.has_local_maxima`), half of the flattened components are uniform instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import Rows, chunk_rows, gather_rows, rows_at_once
from m3g.solvers.sampled.tuple_kernel import TupleList, sampled_list

# If the coupling is close to the true matching, nearly all draws at power 1 are true tuples. A power of 0.5 then
# reduces the sampling error by half or more.
WARM_POWER = 0.5
# If the kernel has local maxima, every fourth component draws all points uniformly. These components also draw tuples
# near maxima that no centre covers. The large importance weights of such tuples increase the estimated error, which
# would otherwise not include the effect of these maxima.
UNIFORM_EVERY = 4


class Mixture:
    """Mixture of the components with the given centres (b, r, k), at log scalings (b, N)."""

    def __init__(self, log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor):
        self.centres = centres
        b, r, self.k = centres.shape
        row_bytes = b * log_kernel.itemsize * (sum(log_kernel.sizes) + log_kernel.num_temporaries)
        step = rows_at_once(r, row_bytes=row_bytes, total_bytes=row_bytes * r, device=centres.device)
        self.components = Rows(partial(component_logs, log_kernel, centres, log_scaling), count=r, step=step)

    def draw(self, per_centre: int, draws: Draws) -> Tensor:
        """Draw tuples, `per_centre` (an even number) from every component: (b, r · per_centre, k).

        The result consists of two independent halves. Within a half, the draws of a component are stratified in each
        view.
        """
        b, r, k = self.centres.shape
        levels = [self._levels(per_centre // 2, draws) for _ in range(k)]
        out = self.centres.new_empty(b, r, per_centre, k)
        for rows, logs in self.components:
            for m, log in enumerate(logs):
                cumulative = log.exp().cumsum(2)
                level = levels[m][:, rows].to(cumulative.dtype) * cumulative[..., -1:]
                out[:, rows, :, m] = torch.searchsorted(cumulative, level).clamp_(max=log.shape[2] - 1)
        # The draw index varies more slowly than the component index, so that the first half of the samples is one of
        # the independent halves.
        return out.transpose(1, 2).reshape(b, r * per_centre, k)

    def _levels(self, per_half: int, draws: Draws) -> Tensor:
        """Return uniform random numbers in [0, 1], stratified within each half: (b, r, 2 · per_half)."""
        shape = (*self.centres.shape[:2], 2, per_half)
        noise = draws.uniform(*shape)
        order = draws.order(*shape)
        return ((order + noise) / per_half).flatten(2)

    def log_density(self, tuples: Tensor) -> Tensor:
        """Return, for every view l, the log density of the tuples with view l marginalised out: (b, s, k)."""
        b, r = self.centres.shape[:2]
        total: Tensor | None = None
        for _, logs in self.components:
            transposed = [log.transpose(1, 2).contiguous() for log in logs]
            # Matrices (tuples, components): one per view, one for their sum, and one temporary.
            row_bytes = b * logs[0].shape[1] * (self.k + 2) * logs[0].element_size()
            step = chunk_rows(tuples.shape[1], row_bytes, tuples.device)
            log_sums = torch.cat([_log_sums(transposed, chunk) for chunk in tuples.split(step, 1)], 1)
            total = log_sums if total is None else torch.logaddexp(total, log_sums)
        assert total is not None
        return total - math.log(r)


def tuple_list(
    log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, per_centre: int, draws: Draws, anchors: Tensor
) -> TupleList:
    """Return a list (tuple_kernel.py) of matched rows, anchors, and draws.

    `anchors` are tuples (b, c, k), and `per_centre` tuples are drawn around every centre (b, r, k).
    """
    mixture = Mixture(log_kernel, centres, log_scaling)
    tuples = mixture.draw(per_centre, draws)
    log_counts = mixture.log_density(torch.cat([anchors, tuples], 1)) + math.log(tuples.shape[1])
    return sampled_list(log_kernel, tuples, log_counts, anchors)


def component_logs(log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, rows: slice) -> list[Tensor]:
    """Return log p_m(i | c without m) of the components c in `rows`, for every view m: k tables (b, rows, n_m).

    Some components are flattened or uniform (see the module docstring).
    """
    logs = []
    for m, scaling in enumerate(log_scaling.split(list(log_kernel.sizes), 1)):
        logits = log_kernel.conditional(m, centres[:, rows])
        logits += scaling.to(logits.dtype).unsqueeze(1)
        # Every second component, counted over all components rather than within the chunk.
        logits[:, rows.start % 2 :: 2] *= WARM_POWER
        if log_kernel.has_local_maxima:
            logits[:, -rows.start % UNIFORM_EVERY :: UNIFORM_EVERY] = 0.0
        logs.append(logits.log_softmax(2))
    return logs


def _log_sums(tables: list[Tensor], tuples: Tensor) -> Tensor:
    """Return log Σ_c Π_{m ≠ l} p_m(t_m | c without m) from tables log p_m (b, n_m, r), for every l: (b, s, k)."""
    picked = [gather_rows(table, tuples[..., m]) for m, table in enumerate(tables)]
    total = picked[0].clone()
    for log in picked[1:]:
        total += log
    return torch.stack([log.neg_().add_(total).logsumexp(2) for log in picked], -1)


def true_tuples(sizes: Sequence[int], count: int, b: int, draws: Draws) -> Tensor:
    """Return true tuples (j, …, j), with as many different j as possible: (b, count, k)."""
    order = draws.order(min(sizes))
    chosen = order[torch.arange(count, device=draws.device) % len(order)]
    return chosen.reshape(1, -1, 1).expand(b, -1, len(sizes))


def anchors_of(target: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return tuples (b, N, k) that support a coupling with the marginals `target` (b, N).

    In each view, the cumulative weights divide the interval from 0 to the mass into one part per point. The end points
    of the parts of all views divide it into N smaller parts, some of length 0. Each smaller part belongs to one point
    of every view, and thus to a tuple.
    """
    ends = [part.cumsum(1) for part in target.split(list(sizes), 1)]
    ends = [end / end[:, -1:] for end in ends]
    steps = torch.cat(ends, 1).sort(1).values
    middles = (steps + torch.cat([torch.zeros_like(steps[:, :1]), steps[:, :-1]], 1)) / 2
    return torch.stack([torch.searchsorted(end, middles).clamp_(max=end.shape[1] - 1) for end in ends], -1)
