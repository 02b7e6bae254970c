"""Sampled solve with a fixed number of rounds and steps, which compiles to one graph.

No value is read on the host. Unlike in rounds.py, the kernel always consists of products (product_kernel.py), the
numbers of rounds and of Newton steps are given, and the kernel's tables are recomputed at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import Problem
from m3g.solvers.sampled.ascent import SampledDual, SampledPoint
from m3g.solvers.sampled.cross_check import VALIDATION_RATIO, cross_check
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import sampling_error
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.product_kernel import ProductList, product_list
from m3g.solvers.sampled.proposals import true_tuples
from m3g.solvers.sampled.rounds import DRAWS_PER_CENTRE, MIN_CHAINS, Estimate


def fixed_rounds(
    problem: Problem,
    log_kernel: LogKernel,
    target: Tensor,
    log_scaling: Tensor,
    draws: Draws,
    *,
    rank: int,
    rounds: int,
    steps: int,
) -> Estimate:
    """Solve with `steps` evaluations of the dual in each of `rounds` rounds, and estimate the error."""
    b = target.shape[0]
    no_anchors = torch.zeros(b, 0, problem.k, dtype=torch.long, device=target.device)  # products use none
    last: SampledPoint | None = None
    for index in range(rounds):
        centres = _centres(log_kernel, rank if index == rounds - 1 else rank // 2, b, last, draws)
        drawn = product_list(log_kernel, centres, log_scaling, DRAWS_PER_CENTRE, draws, no_anchors)
        kernel, last = _fixed_ascent(drawn, target, log_scaling, steps)
        log_scaling = last.log_scaling
    assert last is not None
    count = max(MIN_CHAINS, rank // (DRAWS_PER_CENTRE * VALIDATION_RATIO))
    check = cross_check(product_list, kernel, log_kernel, last, count, DRAWS_PER_CENTRE, draws, no_anchors)
    return Estimate(product_list, kernel, last, sampling_error(kernel, last, problem, DRAWS_PER_CENTRE), check)


def _fixed_ascent(
    kernel: ProductList, target: Tensor, log_scaling: Tensor, steps: int
) -> tuple[ProductList, SampledPoint]:
    """Evaluate the dual `steps` times; return the kernel with its last base, and the last point.

    The tables of the kernel absorb the log scalings at every step.
    """
    kernel = kernel.with_base(log_scaling)
    point = SampledDual(kernel, target, fixed=True).evaluate(log_scaling)
    for _ in range(steps - 1):
        log_scaling = point.log_scaling + SampledDual(kernel, target, fixed=True).direction(point)
        kernel = kernel.with_base(log_scaling)
        point = SampledDual(kernel, target, fixed=True).evaluate(log_scaling)
    return kernel, point


def _centres(log_kernel: LogKernel, rank: int, b: int, last: SampledPoint | None, draws: Draws) -> Tensor:
    """Return centres (b, c, k): true tuples and, in the first round, random tuples; later, draws from `last`."""
    count, sizes = max(4, -(-rank // DRAWS_PER_CENTRE)), log_kernel.sizes
    true = count // 2 if last is None else count // 4
    rest = draws.tuples(sizes, b, count - true) if last is None else last.coupling.draw(count - true, draws)
    return torch.cat([true_tuples(sizes, true, b, draws), rest], 1)
