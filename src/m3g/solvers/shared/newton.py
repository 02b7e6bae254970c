"""Newton system of the dual, H x = right, by conjugate gradients or Cholesky factorisation :cite:`nocedal2006`.

H (N x N) is the negative Hessian of the dual in the log scalings: diag(m_l) on the diagonal blocks and the pair
marginals P_lm elsewhere. It is positive semidefinite with k - 1 null directions, which shift a constant from one view
to another. Right-hand sides are nearly orthogonal to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from m3g.costs import block_matrix
from m3g.costs.coupling import Edge
from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.processes import Shard, read

# Number of points N up to which a factorisation is faster than conjugate gradients.
DIRECT_SIZE = 400
# A direction counts as a null direction if its curvature, relative to that of the diagonal of H, is at most this value.
NULL_CURVATURE = 1e-6
# Number of iterations of conjugate gradients if the residual must not be read on the host.
FIXED_ITERATIONS = 12


def solve_newton(
    pairs: dict[Edge, Tensor],
    marginals: Tensor,
    right: Tensor,
    sizes: Sequence[int],
    *,
    rtol: float,
    dtype: torch.dtype | None = None,
    fixed: bool = False,
    pairs_shard: Shard | None = None,
) -> Tensor:
    """Return x (b, N) with H x = right.

    A large system is solved by conjugate gradients to a relative residual of `rtol`. A small system, or one for which
    they do not converge, is solved by factorisation.

    Args:
        pairs: pair marginals {(l, m): (b, n_l, n_m)} for all l < m.
        marginals: (b, N), the diagonal of H.
        dtype: dtype of the factorisation; None means float64 if the device supports it.
        fixed: whether no value may be read on the host.
        pairs_shard: the shard of which `pairs` are the pair marginals; None if they are those of the full coupling.
    """
    size = marginals.shape[1]
    if size > DIRECT_SIZE:
        solution, converged = conjugate_gradients(
            hessian(pairs, marginals, sizes) if pairs_shard is None else pairs_shard.hessian(pairs, marginals),
            right.to(marginals.dtype),
            marginals,
            rtol=rtol,
            max_steps=FIXED_ITERATIONS if fixed else min(60, size // 16),
            fixed=fixed,
        )
        if converged:
            return solution
    pairs = pairs if pairs_shard is None else pairs_shard.pairs(pairs)
    return factorise(pairs, marginals, right, sizes, dtype=dtype or vector_dtype(marginals.device), fixed=fixed)


def hessian(pairs: dict[Edge, Tensor], marginals: Tensor, sizes: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return the function x -> H x for vectors (b, N)."""
    matrix = block_matrix(pairs, marginals, sizes)
    return lambda vector: torch.bmm(matrix, vector.unsqueeze(-1)).squeeze(-1)


def factorise(
    pairs: dict[Edge, Tensor],
    marginals: Tensor,
    right: Tensor,
    sizes: Sequence[int],
    *,
    dtype: torch.dtype,
    fixed: bool = False,
) -> Tensor:
    """Return x (b, N) with H x = right, by Cholesky factorisation.

    The diagonal is increased by a relative ridge of the size of rounding errors, because of the null directions. If the
    factorisation fails, the ridge is increased. If it fails for all ridges, the result is the Sinkhorn update of every
    view, to first order, divided by k - 1. With `fixed`, a failure is not detected.
    """
    k = len(sizes)
    if marginals.dtype != dtype or right.dtype != dtype or pairs[0, 1].dtype != dtype:
        ridge = 8 * torch.finfo(pairs[0, 1].dtype).eps
        pairs = {edge: pair.to(dtype) for edge, pair in pairs.items()}
        marginals, right = marginals.to(dtype), right.to(dtype)
    else:
        ridge = 4 * marginals.shape[1] * torch.finfo(dtype).eps  # rounding of the factorisation, a sum of N terms
    upper = _above_diagonal(pairs, sizes)
    column = right.unsqueeze(-1)
    for power in range(5):
        diagonal = marginals * (1 + ridge * 30**power)
        if fixed:
            matrix = upper + torch.diag_embed(diagonal)
        else:
            matrix = upper
            matrix.diagonal(dim1=1, dim2=2).copy_(diagonal)
        factor, info = torch.linalg.cholesky_ex(matrix.mT)
        if fixed or not read(info):
            return torch.cholesky_solve(column, factor).squeeze(-1)
    return right / (marginals * (k - 1))


def _above_diagonal(pairs: dict[Edge, Tensor], sizes: Sequence[int]) -> Tensor:
    """Return the part of H above the diagonal as a new matrix (b, N, N); Cholesky does not read the other triangle."""
    k, rows = len(sizes), []
    for l in range(k - 1):
        row = [pairs[l, m] for m in range(l + 1, k)]
        rows.append(pad(row[0] if len(row) == 1 else torch.cat(row, 2), (sum(sizes[: l + 1]), 0)))
    return pad(rows[0] if len(rows) == 1 else torch.cat(rows, 1), (0, 0, 0, sizes[-1]))


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor],
    right: Tensor,
    diagonal: Tensor,
    *,
    rtol: float,
    max_steps: int,
    fixed: bool = False,
) -> tuple[Tensor, bool]:
    """Return x (b, N) with H x = right, by preconditioned conjugate gradients, and whether they converged.

    `multiply` is the function x -> H x, and `diagonal` (b, N) the diagonal of H, which is the preconditioner. The
    residual is read on the host every few iterations. With `fixed`, it is never read, and convergence is assumed.
    """
    x = torch.zeros_like(right)
    residual = right
    z = residual / diagonal
    direction = z
    rho = (residual * z).sum(-1, keepdim=True)
    goal = rho * rtol**2
    check_every = 3 if right.device.type == "cpu" else 10
    tiny = torch.finfo(rho.dtype).tiny
    for step in range(1, max_steps + 1):
        image = multiply(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        # If a problem of the batch is solved exactly, its direction and curvature are 0.
        alpha = rho / curvature.clamp_min(tiny)
        if fixed:  # do not iterate on rounding errors after the goal is reached
            scale = (direction.square() * diagonal).sum(-1, keepdim=True)
            alpha = torch.where((rho > goal) & (curvature > NULL_CURVATURE * scale), alpha, 0.0)
        x = torch.addcmul(x, alpha, direction)
        residual = torch.addcmul(residual, alpha, image, value=-1)
        z = residual / diagonal
        previous, rho = rho, (residual * z).sum(-1, keepdim=True)
        if not fixed and step % check_every == 0 and read(rho - goal) <= 0:
            return x, True
        direction = torch.addcmul(z, rho / previous.clamp_min(tiny), direction)
    return x, fixed or read(rho - goal) <= 0
