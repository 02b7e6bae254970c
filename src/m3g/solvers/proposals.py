"""Where the sampled solver looks: tuples drawn from a mixture whose density is known.

Each component belongs to a tuple c, a guess at where the coupling has its mass, and redraws every view given the
other entries of c: q_c(t) = Π_m p_m(t_m | c without m), p_m being the exact conditional at the current potentials.
If c came from the coupling, each view of the draw does too.

Every other component is warmer: its conditionals are raised to the power WARM. They reach tuples several steps from c,
which the others hardly ever draw, and keep the importance weights bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.solvers.energies import Energies, pick

# Of nearly solved batches, nearly all draws at power 1 are true tuples; 0.5 halves the error there, or better.
WARM = 0.5
# Bytes of the table (draws x components) that densities are summed from, a chunk at a time.
CHUNK_BYTES = 2**25


class Mixture:
    """Components at the tuples `centres` (b, r, k), at log scalings (b, N)."""

    def __init__(self, energies: Energies, centres: Tensor, log_scaling: Tensor):
        self.centres = centres
        self.logs = []
        for m, scaling in enumerate(log_scaling.split(list(energies.sizes), 1)):
            logits = energies.conditional(m, centres)
            logits += scaling.to(logits.dtype).unsqueeze(1)
            logits[:, ::2] *= WARM
            self.logs.append(logits.log_softmax(2))

    def draw(self, each: int, generator: torch.Generator | None) -> Tensor:
        """`each` tuples (a multiple of 2) from every component: (b, r · each, k), the two halves independent.

        Within a half the draws of a component are spread evenly over the distribution of each view, in random order.
        """
        b, r, k = self.centres.shape
        per_half = each // 2
        device = self.centres.device
        out = []
        for logs in self.logs:
            noise = torch.rand(b, r, 2, per_half, generator=generator, device=device)
            order = torch.rand(b, r, 2, per_half, generator=generator, device=device).argsort(-1)
            levels = ((order + noise) / per_half).reshape(b, r, each)
            steps = logs.exp().cumsum(2)
            levels = levels.to(steps.dtype) * steps[..., -1:]
            out.append(torch.searchsorted(steps, levels).clamp_(max=logs.shape[2] - 1))
        # (b, r, each, k) -> halves first, so that a prefix of the draws has whole halves in it.
        return torch.stack(out, -1).transpose(1, 2).reshape(b, r * each, k)

    def log_density(self, tuples: Tensor) -> Tensor:
        """log q of a tuple's entries without view l, for every l: (b, s, k)."""
        b, r = self.centres.shape[:2]
        across = [logs.transpose(1, 2).contiguous() for logs in self.logs]
        step = max(1, CHUNK_BYTES // (b * r * self.logs[0].element_size()))
        parts = []
        for chunk in tuples.split(step, 1):
            picked = [pick(table, chunk[..., m]) for m, table in enumerate(across)]
            total = torch.stack(picked).sum(0)
            parts.append(torch.stack([(total - own).logsumexp(2) for own in picked], -1))
        return torch.cat(parts, 1) - math.log(r)


def true_tuples(
    sizes: Sequence[int], count: int, *, b: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """(j, …, j) for as many different j as there are: (b, count, k)."""
    order = torch.randperm(min(sizes), generator=generator, device=device)
    chosen = order[torch.arange(count, device=device) % len(order)]
    return chosen.reshape(1, -1, 1).expand(b, -1, len(sizes))


def random_tuples(
    sizes: Sequence[int], count: int, *, b: int, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """(b, count, k)."""
    return torch.stack([torch.randint(n, (b, count), generator=generator, device=device) for n in sizes], -1)
