"""Search for tuples with mass under given potentials by Gibbs steps from many starts.

If a heavy tuple is missing, the potentials do not limit its mass: its exponent ⊕h + L is far above all others, so a
chain that redraws one view at a time given the others moves towards it from every start that differs in few views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.recomputed_rows import chunk_rows

# Powers of the conditionals in successive sweeps: a low power escapes local maxima, 1 is the conditional itself.
POWERS = (0.3, 1.0, 1.0)


def powers_for(stages: int, ratio: float) -> tuple[float, ...]:
    """Return the powers for a problem that is first solved at `stages` larger epsilons: as many lower powers precede.

    If exponents differ by hundreds, a chain at a power of 0.3 stays in the first local maximum.
    """
    return (*(POWERS[0] / ratio**stage for stage in range(stages, 0, -1)), *POWERS)


def moved(
    log_kernel: LogKernel, tuples: Tensor, log_scaling: Tensor, draws: Draws, powers: Sequence[float] = POWERS
) -> Tensor:
    """Return tuples (b, c, k) after one sweep over the views at each power of the conditional distributions."""
    b, c, _ = tuples.shape
    out = tuples.clone()
    scalings = log_scaling.split(list(log_kernel.sizes), 1)
    row_bytes = 3 * b * log_kernel.itemsize * (max(log_kernel.sizes) + log_kernel.features)
    step = chunk_rows(c, row_bytes, tuples.device)
    for power in powers:
        for m, scaling in enumerate(scalings):
            levels = draws.uniform(b, c, 1)
            for start in range(0, c, step):
                rows = slice(start, start + step)
                logits = log_kernel.conditional(m, out[:, rows])
                logits += scaling.to(logits.dtype).unsqueeze(1)
                steps = logits.mul_(power).softmax(2).cumsum(2)
                level = levels[:, rows].to(steps.dtype) * steps[..., -1:]
                out[:, rows, m] = torch.searchsorted(steps, level).clamp_(max=steps.shape[2] - 1).squeeze(2)
    return out
