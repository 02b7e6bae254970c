"""Gibbs sampling of tuples with large mass at given potentials.

A sampled kernel may miss a tuple t of large mass. The marginal constraints then do not limit its exponent
Σ_l h_l[t_l] + L(t), where h_l are the log scalings and L is the log kernel (log_kernel.py). The exponent may thus be
far above all others. A chain that redraws one view at a time, given the other views, is likely to move to this tuple
from a start that differs from it in few views.

A product of factors is large only if all factors are, so that most tuples have no neighbour of large mass. For such a
cost with local maxima, uniform starts are too rarely near a tuple of large mass. Each start is then selected from many
uniform tuples in proportion to their mass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import chunk_rows

# Powers of the conditional distributions in successive sweeps. A power below 1 flattens the distribution, so that the
# chain can leave local maxima; 1 is the distribution itself.
POWERS = (0.3, 1.0, 1.0)
# Powers for a cost with local maxima: flattening would undo the selection of the starts.
SELECTED_POWERS = (1.0, 1.0, 1.0)
# Number of tuples from which each start is selected. On products of five to seven views, 64 tuples increased the
# probability that a chain reaches the heaviest tuple by factors of 3 to 12.
CANDIDATES = 64


def sweep_powers(stages: int, ratio: float, *, selected: bool = False) -> tuple[float, ...]:
    """Return one power per sweep: `POWERS`, preceded by one lower power for each of the `stages` larger epsilons.

    The solver first solves at these epsilons (rounds.py); the ratio of successive ones is `ratio`. The lower powers are
    required because, if exponents differ by hundreds, a chain at a power of 0.3 cannot leave the first local maximum.
    With `selected`, return `SELECTED_POWERS`.
    """
    if selected:
        return SELECTED_POWERS
    return (*(POWERS[0] / ratio**stage for stage in range(stages, 0, -1)), *POWERS)


def random_starts(log_kernel: LogKernel, log_scaling: Tensor, count: int, draws: Draws) -> Tensor:
    """Return tuples (b, count, k): uniform, or selected by their mass if the cost has local maxima.

    The mass of a candidate is the sum over the points of view 0, which the first step of a chain redraws.
    """
    b = log_scaling.shape[0]
    if not (log_kernel.has_local_maxima and count):
        return draws.tuples(log_kernel.sizes, b, count)
    first, *others = log_scaling.split(list(log_kernel.sizes), 1)
    row_bytes = 2 * CANDIDATES * b * log_kernel.itemsize * (log_kernel.sizes[0] + log_kernel.num_temporaries)
    step, chosen = chunk_rows(count, row_bytes, log_scaling.device), []
    for start in range(0, count, step):
        size = min(step, count - start)
        tuples = draws.tuples(log_kernel.sizes, b, size * CANDIDATES)
        logits = log_kernel.conditional(0, tuples)
        logits += first.to(logits.dtype).unsqueeze(1)
        logs = log_kernel.rest(0, tuples) + logits.logsumexp(2)
        for scaling, points in zip(others, tuples.unbind(-1)[1:]):
            logs += scaling.gather(1, points)
        # The maximum after the addition of Gumbel noise is a draw in proportion to the mass.
        noise = draws.uniform(b, size, CANDIDATES).log_().neg_().log_().neg_()
        best = (logs.view(b, size, CANDIDATES) + noise).argmax(2)
        candidates = tuples.view(b, size, CANDIDATES, -1)
        index = best[..., None, None].expand(-1, -1, 1, tuples.shape[2])
        chosen.append(candidates.gather(2, index).squeeze(2))
    return torch.cat(chosen, 1)


def gibbs_tuples(
    log_kernel: LogKernel, tuples: Tensor, log_scaling: Tensor, draws: Draws, powers: Sequence[float] = POWERS
) -> Tensor:
    """Return the tuples (b, c, k) after Gibbs sampling: one sweep over the views for each power."""
    b, c, _ = tuples.shape
    out = tuples.clone()
    scalings = log_scaling.split(list(log_kernel.sizes), 1)
    row_bytes = 3 * b * log_kernel.itemsize * (max(log_kernel.sizes) + log_kernel.num_temporaries)
    step = chunk_rows(c, row_bytes, tuples.device)
    for power in powers:
        for m, scaling in enumerate(scalings):
            levels = draws.uniform(b, c, 1)
            for start in range(0, c, step):
                rows = slice(start, start + step)
                logits = log_kernel.conditional(m, out[:, rows])
                logits += scaling.to(logits.dtype).unsqueeze(1)
                cumulative = logits.mul_(power).softmax(2).cumsum(2)
                level = levels[:, rows].to(cumulative.dtype) * cumulative[..., -1:]
                out[:, rows, m] = torch.searchsorted(cumulative, level).clamp_(max=cumulative.shape[2] - 1).squeeze(2)
    return out
