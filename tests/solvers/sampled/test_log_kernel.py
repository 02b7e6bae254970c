"""Log kernels: the cost of every tuple, whichever view is open."""

import pytest
import torch

from m3g.costs import as_cost
from m3g.solvers.sampled.log_kernel import (
    LogResultantKernel,
    MultilinearKernel,
    PairKernel,
    ResultantKernel,
    SumKernel,
)
from solvers.sampled.kernels import EPSILON, problem_of


@pytest.mark.parametrize("sizes", [(3, 3, 3), (4, 3, 5), (2, 2, 2, 2), (3, 4)])
@pytest.mark.parametrize(
    ("kind", "cost"),
    [
        (ResultantKernel, "cv"),
        (PairKernel, "cv"),
        (LogResultantKernel, "csd"),
        (MultilinearKernel, "product"),
        (SumKernel, "0.5*cv + 2*product[:4] + csd"),
    ],
)
def test_log_kernels_give_the_cost_whichever_view_is_open(kind, cost, sizes):
    problem = problem_of(sizes, b=2, cost=as_cost(cost))
    grids = torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
    tuples = torch.stack([grid.reshape(-1) for grid in grids], -1).expand(2, -1, -1)
    log_kernel = kind(problem, EPSILON)
    shift = sum(part.gather(1, tuples[..., l]) for l, part in enumerate(log_kernel.shift.split(list(sizes), 1)))
    for l in range(len(sizes)):
        own = log_kernel.conditional(l, tuples).gather(2, tuples[..., l : l + 1]).squeeze(2)
        costs = (shift - own - log_kernel.rest(l, tuples)) * EPSILON
        torch.testing.assert_close(costs.reshape(2, *sizes), problem.dense(), atol=1e-10, rtol=0)
        assert float((own + log_kernel.rest(l, tuples)).abs().max()) <= log_kernel.reach()
