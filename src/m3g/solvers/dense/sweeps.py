"""Scaling sweeps in the exponential domain, the initialisation of the Newton steps.

The views are divided into a leading group A with α tuples and a group B with β tuples, so that the kernel K (kernel.py)
is a matrix (α, β). u_A and u_B are the outer products of the scalings of A and of B. The updates of all views of A use
only the joint marginal of A, and thus one product K u_B; those of B use one product u_Aᵀ K. A sweep is therefore two
passes over K, without an exponential. If more than one further sweep is expected, the log scalings of A are
extrapolated to the limit of a geometric series at the observed rate of convergence (Aitken's method), which may halve
the number of sweeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.solvers.dense.kernel import Kernel
from m3g.solvers.dense.marginals import group_marginals, group_update, reduced_joints, suffix_products
from m3g.solvers.shared.processes import read_each

# Rounds over the views of a group per product with K.
ROUNDS = 2
# Sweeps before the rate of convergence is estimated, and the largest expected number of further sweeps for which
# sweeping continues.
FIRST_SWEEPS, WORTH = 3, 12
# Scalings are extrapolated if the rate of convergence, the ratio of successive errors, is less than SLOWEST; after only
# two sweeps, or one since the last extrapolation, if it is less than RELIABLE.
SLOWEST, RELIABLE = 0.95, 0.4


@dataclass(frozen=True)
class Swept:
    """Result of the sweeps.

    Attributes:
        log_scaling: (b, N).
        scalings: scalings of K, k tensors (b, n_l).
        error: (b,), the marginal error.
        worst: the maximum of the error over the batch; infinite after an overflow.
        num_steps: number of sweeps.
    """

    log_scaling: Tensor
    scalings: list[Tensor]
    error: Tensor
    worst: float
    num_steps: int


def sweep(kernel: Kernel, target: Tensor, *, tol: float, max_steps: int, worth: int = WORTH) -> Swept:
    """Sweep, starting at the base of the kernel, until the error is at most `tol` or Newton steps would be faster.

    Newton steps are assumed to be faster if more than `worth` further sweeps are expected. `target` (b, N) are the
    weights in the dtype of the kernel.
    """
    assert kernel.base is not None
    h = kernel.lead
    target = target.unsqueeze(1)
    targets = list(torch.split_with_sizes(target, kernel.sizes, 2))
    targets_a, targets_b = targets[:h], targets[h:]
    # A group B of one view has an exact marginal after its update, so it does not contribute to the error.
    num_checked = target.shape[2] if kernel.k - h > 1 else sum(kernel.sizes[:h])
    minus_target = -target[:, :, :num_checked]
    first = list(torch.split_with_sizes(torch.ones_like(target), kernel.sizes, 2))
    valid, parts_a, parts_b = first, first[:h], first[h:]
    errors = [math.inf, math.inf]
    error: Tensor | None = None
    previous: Tensor | None = None
    joints_a = reduced_joints(kernel.lead_sums(), parts_a)
    num_steps, plain = 0, 1 - FIRST_SWEEPS  # `plain`: sweeps since the last extrapolation; starts below 0 to delay it
    while True:
        before = parts_a
        parts_a, products_a = group_update(joints_a, targets_a, ROUNDS)
        plain += 1
        if plain > 0 and _many_left(errors, tol, SLOWEST if plain > 1 else RELIABLE):
            exponent = _remaining_steps(errors, error, previous)
            parts_a = [new * (new / old) ** exponent for new, old in zip(parts_a, before)]
            products_a, plain = suffix_products(parts_a), 0
        sums_b = kernel.right_sums(products_a[0])
        parts_b, products_b = group_update(reduced_joints(sums_b, parts_b), targets_b, ROUNDS)
        num_steps += 1
        joints_a = reduced_joints(kernel.left_sums(products_b[0]), parts_a)
        marginals = group_marginals(joints_a, products_a)
        if len(parts_b) > 1:
            marginals += group_marginals(reduced_joints(sums_b, parts_b), products_b)
        scalings = torch.cat([*parts_a, *parts_b], 2)
        residual = torch.addcmul(minus_target, torch.cat(marginals, 2), scalings[:, :, :num_checked])
        previous, error = error, torch.linalg.vector_norm(residual, ord=1, dim=(1, 2))
        worst, low, high = _observed(kernel, error, scalings, products_a[0], products_b[0])
        errors.append(worst)
        if not (math.isfinite(low) and math.isfinite(high) and not math.isnan(worst)):
            # After an overflow within one sweep, the previous scalings are a better start.
            return _swept(kernel, valid, error, math.inf, num_steps)
        valid = [*parts_a, *parts_b]
        if worst <= tol or num_steps >= max_steps or (plain > 0 and not _worthwhile(errors, tol, worth)):
            return _swept(kernel, valid, error, worst, num_steps)
        if not kernel.in_range(low, high):
            kernel.absorb(_log_scaling(kernel, valid))
            valid, parts_a, parts_b, plain = first, first[:h], first[h:], 0
            joints_a = reduced_joints(kernel.lead_sums(), parts_a)


def _remaining_steps(errors: list[float], error: Tensor | None, previous: Tensor | None) -> float | Tensor:
    """Return the length of all further steps in units of the last one, r + r² + …, for the rate of convergence r.

    `errors` are the largest errors of the batch so far; `error` and `previous` (b,) are the last two of each problem.
    """
    assert error is not None
    assert previous is not None
    if error.numel() == 1:
        return errors[-1] / (errors[-2] - errors[-1])
    rate = (error / previous).view(-1, 1, 1)
    rate = torch.where(rate < SLOWEST, rate, 0.0)
    return rate / (1 - rate)


def _observed(
    kernel: Kernel, error: Tensor, scalings: Tensor, product_a: Tensor, product_b: Tensor
) -> tuple[float, float, float]:
    """Return the largest error, and bounds on the log of a product of scalings, infinite if a product has overflowed.

    Bounds from the smallest and the largest scaling are read first. If they exceed the range of the kernel, sharper
    bounds are computed from the products of each group.
    """
    worst, least, most = read_each(error if error.numel() == 1 else error.amax(), *scalings.aminmax())
    if least > 0 and most < math.inf:
        low, high = kernel.k * math.log(least), kernel.k * math.log(most)
        if kernel.in_range(low, high):
            return worst, low, high
    products = read_each(*product_a.aminmax(), *product_b.aminmax())
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


def _many_left(errors: list[float], tol: float, slowest: float) -> bool:
    """Return whether more than one sweep remains at the last rate of convergence, and this rate is below `slowest`."""
    rate = errors[-1] / errors[-2]
    return 0 < rate < slowest and errors[-1] * rate > tol


def _worthwhile(errors: list[float], tol: float, worth: int) -> bool:
    """Return whether `worth` further sweeps would reach the tolerance at the last rate of convergence."""
    if len(errors) <= FIRST_SWEEPS + 1:
        return True
    rate = errors[-1] / errors[-2]
    return rate < 1 and errors[-1] * rate**worth <= tol
