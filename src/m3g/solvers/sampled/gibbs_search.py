"""Gibbs sampling of tuples with large mass at given potentials.

A sampled kernel may miss a tuple t of large mass. The marginal constraints then do not limit the exponent
Σ_l h_l[t_l] + L(t), which may be far above all others. A chain that redraws one view at a time, given the other views,
moves to this tuple from every start that differs from it in few views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import chunk_rows

# Powers of the conditional distributions in successive sweeps. A power below 1 flattens the distribution, so that the
# chain leaves local maxima; 1 is the distribution itself.
POWERS = (0.3, 1.0, 1.0)


def sweep_powers(stages: int, ratio: float) -> tuple[float, ...]:
    """Return one power per sweep: `POWERS`, preceded by one lower power for each of the `stages` larger epsilons.

    If exponents differ by hundreds, a chain at a power of 0.3 cannot leave the first local maximum.
    """
    return (*(POWERS[0] / ratio**stage for stage in range(stages, 0, -1)), *POWERS)


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
