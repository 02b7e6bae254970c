"""Contraction of a coupling whose slabs are distributed over several processes (see `Shard`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.costs import PairwiseProblem
from m3g.costs.coupling import Edge, PairCoupling
from m3g.solvers.factored.contraction import CompleteContraction
from m3g.solvers.factored.kernels import Kernels
from m3g.solvers.shared.couplings import summed_gradients
from m3g.solvers.shared.dual import Contracted, Contraction, MarginalDual
from m3g.solvers.shared.processes import Shard

# Total number of points N of all views up to which the pair marginals are exchanged in every step. Beyond it, each
# process keeps those of its slab, and every product with the Hessian exchanges a vector.
EXCHANGED_SIZE = 2048


class ShardedContraction(Contraction):
    """Contraction of a coupling: every process contracts its slab by `own`, and the results are summed."""

    def __init__(self, own: Contraction, shard: Shard):
        self.own, self.slab = own, shard
        self.sizes, self.lead, self.in_logs = list(shard.sizes), own.lead, own.in_logs
        self.pairs_shard = shard if sum(self.sizes) > EXCHANGED_SIZE else None

    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        rows, own = self.slab.rows, list(scalings)
        own[self.lead] = own[self.lead][:, rows]
        contracted = self.own.evaluate(own, target[:, rows])
        before = sum(self.sizes[: self.lead])
        first, last = contracted.others.split([before, contracted.others.shape[1] - before], 1)
        vector, pairs = torch.cat([first, contracted.lead.to(first.dtype), last], 1), contracted.pairs
        if self.pairs_shard is None:
            vector, pairs = self.slab.summed_with_pairs(vector, pairs)
        else:
            vector = self.slab.summed(vector)
        first, lead, last = vector.split([before, self.sizes[self.lead], last.shape[1]], 1)
        return Contracted(pairs, torch.cat([first, last], 1), lead)


def sharded_gradients(problem: PairwiseProblem, pairs: dict[Edge, Tensor], shard: Shard) -> tuple[Tensor, ...]:
    """Return `problem.gradient` of the full coupling; each process passes the pair marginals of its own slab."""
    pairs = {edge: pair.to(problem.dtype) for edge, pair in pairs.items()}
    marginals = [pairs[0, 1].sum(2), *(pairs[0, l].sum(1) for l in range(1, problem.k))]
    own = PairCoupling(pairs, marginals, shard.own_sizes)
    return summed_gradients(problem, own, shard.processes, shard.rows, lead=shard.lead)


def all_pairs(sizes: Sequence[int], kernels: Kernels, log_scaling: Tensor) -> dict[Edge, Tensor]:
    """Return the pair marginals of the full coupling, computed by this process without communication."""
    contraction = CompleteContraction(kernels.matrices, sizes)
    dual = MarginalDual.of(contraction, kernels.target, kernels.dtype, newton=True, fixed=False)
    return dual.evaluate(log_scaling).pairs
