"""Scaling sweeps in the exponential domain, the initialisation of the Newton steps.

The views are divided into two groups A and B, so that K is a matrix (α, β). One product K u_B suffices for the updates
of all views of A, which use the joint marginal of A only, and u_Aᵀ K for those of B: a sweep is two passes over K
without an exponential. If many sweeps are left, the log scalings of A are extrapolated to the limit of a geometric
series at the observed rate of convergence (Aitken's method), which halves their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.solvers.dense.kernel import Kernel
from m3g.solvers.dense.marginals import group_marginals, group_update, outer_row
from m3g.solvers.shared.processes import agreed

# Rounds over the views of a group per product with K.
ROUNDS = 2
# Sweeps before the rate of convergence is estimated, and the expected number of sweeps up to which sweeping continues.
FIRST_SWEEPS, WORTH = 3, 12
# Expected number of sweeps above which scalings are extrapolated, and the largest rate of convergence assumed then.
FEW, SLOWEST = 2.5, 0.95


@dataclass(frozen=True)
class Swept:
    """Result of the sweeps.

    Attributes:
        log_scaling: (b, N).
        scalings: those of the kernel, k tensors (b, n_l).
        error: (b,), and `worst`, its largest value.
        num_steps: number of sweeps.
    """

    log_scaling: Tensor
    scalings: list[Tensor]
    error: Tensor
    worst: float
    num_steps: int


def sweep(kernel: Kernel, target: Tensor, *, tol: float, max_steps: int, worth: int = WORTH) -> Swept:
    """Sweep from the base of the kernel until the error is at most `tol`, or more than `worth` sweeps would follow.

    `target` (b, N) are the weights in the dtype of the kernel.
    """
    assert kernel.base is not None
    h = kernel.lead
    target = target.unsqueeze(1)
    wanted = list(target.split(kernel.sizes, 2))
    # If its marginal is exact, group B does not contribute to the error.
    goal = target if kernel.k - h > 1 else target.narrow(2, 0, sum(kernel.sizes[:h]))
    first = [torch.ones_like(part) for part in wanted]
    parts_a, parts_b = first[:h], first[h:]
    errors = [math.inf, math.inf]
    error = previous = torch.full_like(target[:, 0, 0], math.inf)
    good = first
    sums_a = kernel.left_sums(outer_row(parts_b))
    num_steps, plain = 0, 1 - FIRST_SWEEPS  # the latter since the last extrapolation
    while True:
        before = parts_a
        for _ in range(ROUNDS if h > 1 else 1):
            parts_a = group_update(sums_a, parts_a, wanted[:h])
        plain += 1
        if plain > 1 and _many_left(errors, tol):
            rate = (error / previous).view(-1, 1, 1)
            rate = torch.where(rate < SLOWEST, rate, 0.0)
            parts_a = [new * (new / old) ** (rate / (1 - rate)) for new, old in zip(parts_a, before)]
            plain = 0
        outer_a = outer_row(parts_a)
        sums_b = kernel.right_sums(outer_a)
        for _ in range(ROUNDS if len(parts_b) > 1 else 1):
            parts_b = group_update(sums_b, parts_b, wanted[h:])
        num_steps += 1
        outer_b = outer_row(parts_b)
        sums_a = kernel.left_sums(outer_b)
        marginals, scalings = group_marginals(sums_a, parts_a), [*parts_a, *parts_b]
        if len(parts_b) > 1:
            marginals += group_marginals(sums_b, parts_b)
        off = torch.cat(marginals, 2).mul_(torch.cat(scalings[: len(marginals)], 2)).sub_(goal)
        previous, error = error, torch.linalg.vector_norm(off, ord=1, dim=(1, 2))
        worst, low, high = _observed(error, outer_a, outer_b)
        errors.append(worst)
        if not (math.isfinite(low) and math.isfinite(high) and not math.isnan(worst)):
            # After an overflow within one sweep, the previous scalings are a better start.
            return _swept(kernel, good, error, math.inf, num_steps)
        if worst <= tol or num_steps >= max_steps or (plain > 0 and not _worthwhile(errors, tol, worth)):
            return _swept(kernel, scalings, error, worst, num_steps)
        good = scalings
        if not kernel.in_range(low, high):
            kernel.absorb(_log_scaling(kernel, scalings))
            good, parts_a, parts_b, plain = first, first[:h], first[h:], 0
            sums_a = kernel.left_sums(outer_row(parts_b))


def _observed(error: Tensor, outer_a: Tensor, outer_b: Tensor) -> tuple[float, float, float]:
    """Return the largest error, and the smallest and largest log of a product of scalings, with one host read.

    A logarithm is infinite if a product has overflowed or underflowed.
    """
    bounds = [error.amax(), *outer_a.aminmax(), *outer_b.aminmax()]
    worst, *products = agreed(torch.stack(bounds).tolist())
    if not all(0 < product < math.inf for product in products):
        return worst, -math.inf, math.inf
    least_a, most_a, least_b, most_b = map(math.log, products)
    return worst, least_a + least_b, most_a + most_b


def _swept(kernel: Kernel, rows: list[Tensor], error: Tensor, worst: float, num_steps: int) -> Swept:
    return Swept(_log_scaling(kernel, rows), [row.squeeze(1) for row in rows], error, worst, num_steps)


def _log_scaling(kernel: Kernel, rows: list[Tensor]) -> Tensor:
    """Return the log scalings (b, N) of scalings u_l (b, 1, n_l) of K."""
    assert kernel.base is not None
    return kernel.base + torch.cat(rows, 2).squeeze(1).log_().to(kernel.base.dtype)


def _many_left(errors: list[float], tol: float) -> bool:
    """Return whether more than a few sweeps are left at the last rate of convergence."""
    rate = errors[-1] / errors[-2]
    return 0 < rate < SLOWEST and errors[-1] * rate**FEW > tol


def _worthwhile(errors: list[float], tol: float, worth: int) -> bool:
    """Return whether the tolerance is expected within a number of sweeps at the last rate of convergence."""
    if len(errors) <= FIRST_SWEEPS + 1:
        return True
    rate = errors[-1] / errors[-2]
    return rate < 1 and errors[-1] * rate**worth <= tol
