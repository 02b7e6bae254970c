"""Marginals of a coupling distributed over processes, each with a slab."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.solvers.shared.contraction import Contracted, Contraction
from m3g.solvers.shared.processes import Shard

# Total number of points up to which pair marginals are exchanged in every step. Beyond it, each process keeps its part
# of them, and a multiplication with the Hessian exchanges a vector.
EXCHANGED_SIZE = 2048


class ShardedContraction(Contraction):
    """The contraction `own` of the own slab, followed by an exchange of its results."""

    def __init__(self, own: Contraction, shard: Shard):
        self.own, self.slab = own, shard
        self.sizes, self.lead, self.in_logs = list(shard.sizes), own.lead, own.in_logs
        self.partial = shard if sum(self.sizes) > EXCHANGED_SIZE else None

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        rows, own = self.slab.rows, list(scalings)
        own[self.lead] = own[self.lead][:, rows]
        contracted = self.own.evaluate(own, target[:, rows])
        before = sum(self.sizes[: self.lead])
        first, last = contracted.others.split([before, contracted.others.shape[1] - before], 1)
        vector, pairs = torch.cat([first, contracted.lead.to(first.dtype), last], 1), contracted.pairs
        if self.partial is None:
            vector, pairs = self.slab.summed_with_pairs(vector, pairs)
        else:
            vector = self.slab.summed(vector)
        first, lead, last = vector.split([before, self.sizes[self.lead], last.shape[1]], 1)
        return Contracted(pairs, torch.cat([first, last], 1), lead)
