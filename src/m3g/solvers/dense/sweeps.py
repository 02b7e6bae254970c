"""Scaling sweeps in the exponential domain, the initialisation of the Newton steps.

The views are divided into two groups A and B, so that K is a matrix (α, β). One product K u_B suffices for the updates
of all views of A, which use the joint marginal of A only, and u_Aᵀ K for those of B: a sweep is two passes over K
without an exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs.contraction import outer
from m3g.solvers.dense.kernel import STRETCH, Kernel
from m3g.solvers.dense.marginals import group_marginals, group_update
from m3g.solvers.shared.processes import read

# Rounds over the views of a group per product with K.
ROUNDS = 2
# Sweeps before the rate of convergence is estimated, and the expected number of sweeps up to which sweeping continues.
FIRST_SWEEPS, WORTH = 3, 12


@dataclass(frozen=True)
class Swept:
    """Result of the sweeps: log scalings (b, N), the error (b,), its largest value, and the number of sweeps."""

    log_scaling: Tensor
    error: Tensor
    worst: float
    num_steps: int


def sweep(kernel: Kernel, target: Tensor, *, tol: float, max_steps: int, worth: int = WORTH) -> Swept:
    """Sweep from the base of the kernel until the error is at most `tol`, or more than `worth` others would be needed.

    `target` (b, N) are the weights in the dtype of the kernel.
    """
    assert kernel.base is not None
    sizes, h = kernel.sizes, kernel.lead
    wanted = list(target.split(sizes, 1))
    first = [torch.ones_like(part) for part in wanted]
    parts_a, parts_b = first[:h], first[h:]
    goal_a, goal_b = target.split([sum(sizes[:h]), sum(sizes[h:])], 1)
    errors = [math.inf, math.inf]
    good = first
    sums_a = kernel.left_sums(outer(parts_b))
    num_steps = 0
    while True:
        for _ in range(ROUNDS if h > 1 else 1):
            parts_a = group_update(sums_a, parts_a, wanted[:h])
        sums_b = kernel.right_sums(outer(parts_a))
        for _ in range(ROUNDS if len(parts_b) > 1 else 1):
            parts_b = group_update(sums_b, parts_b, wanted[h:])
        num_steps += 1
        sums_a = kernel.left_sums(outer(parts_b))
        error = _error(group_marginals(sums_a, parts_a), parts_a, goal_a)
        if len(parts_b) > 1:  # otherwise its marginal is exact
            error = error + _error(group_marginals(sums_b, parts_b), parts_b, goal_b)
        worst = read(error)
        errors.append(worst)
        scalings = [*parts_a, *parts_b]
        least, largest = torch.cat(scalings, 1).aminmax()
        low, high = -read(-least), read(largest)
        if not (low > 0 and math.isfinite(high) and not math.isnan(worst)):
            # Overflow within one sweep: the previous scalings are the better start.
            return Swept(_log_scaling(kernel, good), error, math.inf, num_steps)
        if worst <= tol or num_steps >= max_steps or not _worthwhile(errors, tol, worth):
            return Swept(_log_scaling(kernel, scalings), error, worst, num_steps)
        good = scalings
        if max(-math.log(low), math.log(high)) * kernel.k > STRETCH[kernel.dtype]:
            kernel.absorb(_log_scaling(kernel, scalings))
            good, parts_a, parts_b = first, first[:h], first[h:]
            sums_a = kernel.left_sums(outer(parts_b))


def _log_scaling(kernel: Kernel, scalings: list[Tensor]) -> Tensor:
    """Return the log scalings (b, N) of scalings u_l of K."""
    assert kernel.base is not None
    return kernel.base + torch.cat(scalings, 1).log_().to(kernel.base.dtype)


def _error(marginals: list[Tensor], scalings: list[Tensor], goal: Tensor) -> Tensor:
    """Σ_l |u_l s_l - a_l|_1 (b,) of some views, with marginals s_l without their own scalings."""
    off = torch.cat(marginals, 1).mul_(torch.cat(scalings, 1)).sub_(goal)
    found: Tensor = torch.linalg.vector_norm(off, ord=1, dim=1)
    return found


def _worthwhile(errors: list[float], tol: float, worth: int) -> bool:
    """Return whether the tolerance is expected within a number of sweeps at the last rate of convergence."""
    if len(errors) <= FIRST_SWEEPS + 1:
        return True
    rate = errors[-1] / errors[-2]
    return rate < 1 and errors[-1] * rate**worth <= tol
