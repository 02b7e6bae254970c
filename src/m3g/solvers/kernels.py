"""Pair kernels exp(-D_lm / eps) in numbers that stay in range, and a first guess of the scalings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import PairwiseProblem
from m3g.costs.problem import Edge
from m3g.solvers.precision import vector_dtype

# Exponents, summed over the pairs, that the range of the type holds with room for the scalings.
SINGLE_RANGE, DOUBLE_RANGE = 60.0, 500.0
# float32 sums of n² entries do not settle below this error.
SINGLE_TOLERANCE = 5e-6
BALANCING_STEPS = 2


@dataclass(frozen=True)
class Kernels:
    """Kernels {(l, m): (b, n_l, n_m)}, the logarithms of scalings to start from (b, N), and the shift (b, N) that
    turns log scalings into potentials / eps.
    """

    matrices: dict[Edge, Tensor]
    start: Tensor
    shift: Tensor


def pair_kernels(problem: PairwiseProblem, target: Tensor, *, epsilon: float, tol: float, look: bool) -> Kernels:
    """The kernels of a problem, each balanced on its own for a first guess of the scalings.

    With `look` the range of the exponents decides between float32 and float64; without, the problem's type stays.
    """
    dtype = problem.dtype
    narrow = dtype == torch.float32 and problem.device.type != "mps"
    if narrow and tol < SINGLE_TOLERANCE:
        dtype = torch.float64
    exponents = problem.log_kernels(epsilon, dtype)
    if look:
        reach = float(torch.stack([spread(group).sum(1) for group in exponents.groups]).sum(0).max())
        if reach > DOUBLE_RANGE:
            raise ValueError(
                f"epsilon takes at least {epsilon * reach / DOUBLE_RANGE:.2g} with solver='factored' on these costs, "
                f"got {epsilon:g}: their range over epsilon is past that of float64; use solver='sinkhorn'."
            )
        if narrow and dtype == torch.float32 and reach > SINGLE_RANGE:
            exponents = problem.log_kernels(epsilon, torch.float64)
    matrices: dict[Edge, Tensor] = {}
    start = target.log()
    parts = start.split(list(problem.sizes), 1)
    edges = iter(problem.edges)
    for group in exponents.groups:
        kernels = group.exp_()
        left, right = balance(kernels)
        for i, kernel in enumerate(kernels.unbind(1)):
            l, m = next(edges)
            matrices[l, m] = kernel
            parts[l].add_(left[:, i])
            parts[m].add_(right[:, i])
    return Kernels(matrices, start, exponents.shift.to(vector_dtype(problem.device)))


def balance(kernels: Tensor) -> tuple[Tensor, Tensor]:
    """log u (b, e, n) and log v (b, e, m) such that rows and columns of u K v average about 1: two-view Sinkhorn."""
    flat = kernels.flatten(0, 1)
    rows, columns = flat.shape[1:]
    left = flat.sum(2, keepdim=True).reciprocal_()
    for _ in range(BALANCING_STEPS - 1):
        right = torch.bmm(left.transpose(1, 2), flat).reciprocal_()
        left = torch.bmm(flat, right.transpose(1, 2)).reciprocal_()
    right = torch.bmm(left.transpose(1, 2), flat).reciprocal_().mul_(rows)
    shape = kernels.shape[:2]
    return left.mul_(columns).log_().reshape(*shape, rows), right.div_(columns).log_().reshape(*shape, columns)


def spread(matrices: Tensor) -> Tensor:
    """Largest minus smallest entry of each matrix in (..., n, m)."""
    low, high = matrices.flatten(-2).aminmax(dim=-1)
    return high - low
