"""Pair kernels exp(-D_lm / eps) in a form whose numbers stay in range.

A term of the cost that depends on one view alone changes neither the optimal coupling nor the gap, so each pair may
be centred and scaled at will, as long as the potentials are told.
"""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import PairwiseProblem
from m3g.costs.problem import Edge
from m3g.solvers.precision import vector_dtype

# Exponents, summed over the pairs, that the range of the type holds with room for the scalings.
SINGLE_RANGE, DOUBLE_RANGE = 80.0, 650.0
# float32 sums of n² entries do not settle below this error.
SINGLE_TOLERANCE = 5e-6
BALANCING_STEPS = 2


def balanced_kernels(
    problem: PairwiseProblem, *, epsilon: float, tol: float, look: bool
) -> tuple[dict[Edge, Tensor], Tensor]:
    """Kernels {(l, m): (b, n_l, n_m)} balanced pair by pair, and what that moved into the log scalings: (b, N).

    With `look` the range of the exponents decides between float32 and float64; without, the problem's type stays.
    """
    groups = [problem.stacked] if problem.stacked is not None else [cost.unsqueeze(1) for cost in problem.costs]
    dtype = problem.dtype
    exponents = [centred(cost, epsilon, dtype) for cost in groups]
    if look:
        reach = float(torch.stack([spread(exponent).sum(1) for exponent, _, _ in exponents]).sum(0).max())
        if reach > DOUBLE_RANGE:
            raise ValueError(
                f"epsilon takes at least {epsilon * reach / DOUBLE_RANGE:.2g} for solver='factored' on these costs, "
                f"got {epsilon:g}: their range over epsilon is past that of float64; use solver='sinkhorn'."
            )
        narrow = dtype == torch.float32 and problem.device.type != "mps"
        if narrow and (reach > SINGLE_RANGE or tol < SINGLE_TOLERANCE):
            dtype = torch.float64
            exponents = [centred(cost, epsilon, dtype) for cost in groups]
    shift = torch.zeros(
        problem.num_batch, sum(problem.sizes), dtype=vector_dtype(problem.device), device=problem.device
    )
    parts = shift.split(list(problem.sizes), 1)
    kernels: dict[Edge, Tensor] = {}
    edges = iter(problem.edges)
    for exponent, rows, columns in exponents:
        kernel, left, right = balanced(exponent.exp_())
        left, right = left.log_() - rows.squeeze(-1), right.log_() - columns.squeeze(-2)
        for i, matrix in enumerate(kernel.unbind(1)):
            l, m = next(edges)
            kernels[l, m] = matrix
            parts[l].add_(left[:, i])
            parts[m].add_(right[:, i])
    return kernels, shift


def centred(cost: Tensor, epsilon: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """-cost / eps (..., n, m) without its row and column means, and these."""
    exponent = cost.to(dtype) * (-1 / epsilon)
    rows = exponent.mean(-1, keepdim=True)
    columns = exponent.mean(-2, keepdim=True) - rows.mean(-2, keepdim=True)
    return exponent.sub_(rows).sub_(columns), rows, columns


def balanced(kernel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """u K v whose rows and columns average about 1, and u (..., n), v (..., m): two-view Sinkhorn updates."""
    transposed = kernel.transpose(-1, -2)
    right = torch.ones_like(kernel[..., 0, :]).unsqueeze(-1)
    for _ in range(BALANCING_STEPS):
        left = kernel.shape[-1] / (kernel @ right)
        right = kernel.shape[-2] / (transposed @ left)
    return (kernel * left).mul_(right.transpose(-1, -2)), left.squeeze(-1), right.squeeze(-1)


def spread(matrices: Tensor) -> Tensor:
    """Largest minus smallest entry of each matrix in (..., n, m)."""
    return matrices.amax((-2, -1)) - matrices.amin((-2, -1))
