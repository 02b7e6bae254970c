"""The Newton system of the dual: H = [diag(m_l) on the diagonal blocks, P_lm off it], N x N with N = Σ n_l.

H is positive semi-definite with k - 1 null directions (a constant moved from one potential to another), on which
every right-hand side that arises here vanishes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Below this size a factorisation is quicker than a handful of iterations.
DIRECT_SIZE = 160


def solve_newton(matrix: Tensor, right: Tensor, *, rtol: float) -> Tensor:
    """x with H x = right (b, N), to a residual of rtol: conjugate gradients, or a factorisation where they stall."""
    size = right.shape[-1]
    if size > DIRECT_SIZE:
        solution, fine = conjugate_gradients(
            lambda v: torch.bmm(matrix, v.unsqueeze(-1)).squeeze(-1),
            right.to(matrix.dtype),
            matrix.diagonal(dim1=1, dim2=2),
            rtol=rtol,
            max_steps=min(60, size // 16),
        )
        if fine:
            return solution.to(right.dtype)
    return factorise(matrix, right)


def factorise(matrix: Tensor, right: Tensor) -> Tensor:
    """By Cholesky in float64, with a ridge at the rounding error of the matrix to fix the null directions."""
    double = torch.float32 if matrix.device.type == "mps" else torch.float64
    rounding = torch.finfo(matrix.dtype).eps
    scale = matrix.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None].to(double)
    identity = torch.eye(matrix.shape[-1], dtype=double, device=matrix.device)
    system = matrix.to(double)
    for power in range(5):
        ridge = scale * (8 * rounding * 30**power)
        factor, info = torch.linalg.cholesky_ex(system + ridge * identity)
        if not bool(info.any()):
            break
    else:
        raise RuntimeError("the Newton system could not be factorised: its entries are not those of a coupling")
    return torch.cholesky_solve(right.to(double).unsqueeze(-1), factor).squeeze(-1)


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor], right: Tensor, diagonal: Tensor, *, rtol: float, max_steps: int
) -> tuple[Tensor, bool]:
    """Preconditioned by the diagonal; the host looks at the residual every few steps only."""
    x = torch.zeros_like(right)
    residual = right.clone()
    z = residual / diagonal
    direction = z
    rho = (residual * z).sum(-1, keepdim=True)
    goal = rho * rtol**2
    every = 3 if right.device.type == "cpu" else 10
    for step in range(1, max_steps + 1):
        image = multiply(direction)
        # A problem of the batch that is already solved exactly has direction 0.
        alpha = rho / (direction * image).sum(-1, keepdim=True).clamp_min(torch.finfo(rho.dtype).tiny)
        x = x + alpha * direction
        residual = residual - alpha * image
        z = residual / diagonal
        previous, rho = rho, (residual * z).sum(-1, keepdim=True)
        if step % every == 0 and bool((rho <= goal).all()):
            return x, True
        direction = z + (rho / previous.clamp_min(torch.finfo(rho.dtype).tiny)) * direction
    return x, bool((rho <= goal).all())
