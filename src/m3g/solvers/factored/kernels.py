"""Pair kernels exp(-D_lm / eps) in numbers that stay in range, and a first guess of the scalings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import PairwiseProblem
from m3g.costs.circular import edge_index
from m3g.costs.coupling import Edge
from m3g.solvers.shared.precision import DOUBLE_RANGE, SINGLE_RANGE, vector_dtype

# float32 sums of n² entries do not settle below this error.
SINGLE_TOLERANCE = 5e-6


@dataclass(frozen=True)
class Kernels:
    """What the ascent starts from.

    Attributes:
        matrices: kernels {(l, m): (b, n_l, n_m)}.
        start: logarithms of the first scalings: (b, N).
        shift: (b, N), turns log scalings into potentials / eps.
    """

    matrices: dict[Edge, Tensor]
    start: Tensor
    shift: Tensor


def pair_kernels(
    problem: PairwiseProblem, log_target: Tensor, *, epsilon: float, tol: float, read_values: bool
) -> Kernels:
    """The kernels of a problem, each balanced on its own for a first guess of the scalings.

    With `read_values` the range of the exponents decides between float32 and float64; without, the type of the problem
    stays.
    """
    dtype = problem.dtype
    narrow = dtype == torch.float32 and problem.device.type != "mps"
    if narrow and tol < SINGLE_TOLERANCE:
        dtype = torch.float64
    exponents = problem.log_kernels(epsilon, dtype)
    balancing_steps = 3
    if read_values:
        reach = max(float(farthest(group)) for group in exponents.groups) * len(problem.edges)
        if reach > DOUBLE_RANGE:
            raise ValueError(
                f"epsilon must be at least {epsilon * reach / DOUBLE_RANGE:.2g} with solver='factored' on these costs, "
                f"got {epsilon:g}: their range over epsilon is past that of float64; use solver='sinkhorn'."
            )
        if narrow and dtype == torch.float32 and reach > SINGLE_RANGE:
            exponents = problem.log_kernels(epsilon, torch.float64)
        # Nearly flat kernels are balanced at once; for two views balancing is all there is to do, and cheap.
        balancing_steps = 1 if reach < (5 if problem.k == 2 else 20) else 8 if problem.k == 2 and reach < 20 else 3
    return Kernels(
        *balanced(problem, exponents.groups, log_target, balancing_steps),
        exponents.shift.to(vector_dtype(problem.device)),
    )


def balanced(
    problem: PairwiseProblem, groups: list[Tensor], log_target: Tensor, steps: int
) -> tuple[dict[Edge, Tensor], Tensor]:
    """Kernels by edge, and log scalings (b, N) that balance each of them as if it stood alone."""
    start = log_target.clone()
    matrices: dict[Edge, Tensor] = {}
    if len(groups) == 1 and groups[0].shape[1] > 1:
        kernels = groups[0].exp_()
        for edge, kernel in zip(problem.edges, kernels.unbind(1)):
            matrices[edge] = kernel
        left, right = balance(kernels, steps)
        by_view = start.view(start.shape[0], problem.k, -1)
        if problem.complete:
            rows, columns = edge_index(problem.k, start.device)
        else:
            rows, columns = (torch.tensor(ends, device=start.device) for ends in zip(*problem.edges))
        by_view.index_add_(1, rows, left.to(start.dtype))
        by_view.index_add_(1, columns, right.to(start.dtype))
        return matrices, start
    parts = start.split(list(problem.sizes), 1)
    for (l, m), group in zip(problem.edges, groups):
        kernel = group.exp_()
        left, right = balance(kernel, steps)
        matrices[l, m] = kernel[:, 0]
        parts[l].add_(left[:, 0])
        parts[m].add_(right[:, 0])
    return matrices, start


def balance(kernels: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """log u (b, e, n) and log v (b, e, m) such that rows and columns of u K v average about 1: two-view Sinkhorn."""
    b, e, n, m = kernels.shape
    flat = kernels.view(b * e, n, m)
    left = flat.mean(2, keepdim=True).reciprocal_()
    right = torch.bmm(left.transpose(1, 2), flat).reciprocal_()
    for _ in range(steps - 1):
        left = torch.bmm(flat, right.transpose(1, 2)).reciprocal_()
        right = torch.bmm(left.transpose(1, 2), flat).reciprocal_()
    # A constant factor is left over, which the first scaling of the leading view puts right.
    return left.log_().view(b, e, n), right.log_().view(b, e, m)


def farthest(exponents: Tensor) -> Tensor:
    """The largest exponent in absolute value, of the whole group."""
    low, high = exponents.aminmax()
    return torch.maximum(-low, high)
