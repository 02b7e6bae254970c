"""Rounds with a fixed number of steps, without reading values on the host, so that they can be compiled.

The decisions of `rounds.py` are made beforehand: kernels of products only, given numbers of rounds and of Newton steps
in each, tables recomputed at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import Problem
from m3g.solvers.sampled.ascent import ListDual, ListPoint
from m3g.solvers.sampled.cross_check import FRESH_PART, fresh_check
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import sampling_error
from m3g.solvers.sampled.log_kernel import LogKernel
from m3g.solvers.sampled.product_kernel import ProductList, product_list
from m3g.solvers.sampled.proposals import true_tuples
from m3g.solvers.sampled.rounds import DRAWS_EACH, FEWEST_CHAINS, SolvedList


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
) -> SolvedList:
    """Execute `steps` evaluations in each of `rounds` rounds, and estimate the error."""
    b = target.shape[0]
    no_anchors = torch.zeros(b, 0, problem.k, dtype=torch.long, device=target.device)
    last: ListPoint | None = None
    for turn in range(rounds):
        centres = _centres(log_kernel, rank if turn == rounds - 1 else rank // 2, b, last, draws)
        drawn = product_list(log_kernel, centres, log_scaling, DRAWS_EACH, draws, no_anchors)
        listed, last = _ascent(drawn, target, log_scaling, steps)
        log_scaling = last.log_scaling
    assert last is not None
    count = max(FEWEST_CHAINS, rank // (DRAWS_EACH * FRESH_PART))
    check = fresh_check(product_list, listed, log_kernel, last, count, DRAWS_EACH, draws, no_anchors)
    return SolvedList(product_list, listed, last, sampling_error(listed, last, problem, DRAWS_EACH), check)


def _ascent(listed: ProductList, target: Tensor, log_scaling: Tensor, steps: int) -> tuple[ProductList, ListPoint]:
    based = listed.based(log_scaling)
    point = ListDual(based, target, fixed=True).evaluate(log_scaling)
    for _ in range(steps - 1):
        log_scaling = point.log_scaling + ListDual(based, target, fixed=True).direction(point)
        based = listed.based(log_scaling)
        point = ListDual(based, target, fixed=True).evaluate(log_scaling)
    return based, point


def _centres(log_kernel: LogKernel, rank: int, b: int, last: ListPoint | None, draws: Draws) -> Tensor:
    """Return half true and half random tuples at first; then a quarter true ones, the rest from the last coupling."""
    count, sizes = max(4, -(-rank // DRAWS_EACH)), log_kernel.sizes
    true = count // 2 if last is None else count // 4
    rest = draws.tuples(sizes, b, count - true) if last is None else last.coupling.draw(count - true, draws)
    return torch.cat([true_tuples(sizes, true, b, draws), rest], 1)
