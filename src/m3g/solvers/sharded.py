"""Distribution of one solve over several processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.auto import workload
from m3g.solvers.shared.processes import Processes
from m3g.solvers.shared.solver import Solver
from m3g.solvers.solution import Solution


@dataclass(frozen=True)
class Sharded(Solver):
    """Wrapper that distributes the large solves of another solver over all processes of the default group.

    All processes must call `solve` with the same problem, and all obtain the same solution. Each of p processes
    computes the tuples of its rows of one view (usually n^k / p tuples) or, in the sampled solver, its part of the
    samples. If one process raises, all raise. A solver with `fixed_steps` is not distributed, because every exchange
    between processes reads values on the host.

    Args:
        inner: the solver.
        min_flops: minimum number of operations per step. A smaller solve is not distributed, because communication
            would take longer than it saves.
    """

    inner: Solver
    min_flops: float = 1e10

    name = "sharded"

    def __post_init__(self) -> None:
        self.validate(_checks.non_negative, "min_flops")

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if not self._is_distributed(problem):
            return self.inner.solve(problem, epsilon=epsilon, tol=tol, weights=weights)
        with Processes(problem.device).sharing():
            return self.inner.solve(problem, epsilon=epsilon, tol=tol, weights=weights)

    def _is_distributed(self, problem: Problem) -> bool:
        if self.inner.fixed_steps is not None or not (dist.is_available() and dist.is_initialized()):
            return False
        if not 1 < dist.get_world_size() <= min(problem.sizes):
            return False
        solver = self.inner.decide(problem)
        return solver.distributable and workload(problem, solver=solver.name).flops >= self.min_flops
