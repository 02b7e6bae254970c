"""Newton system of the dual: H = [diag(m_l) on the diagonal blocks, P_lm elsewhere], N x N with N = Σ n_l.

H is positive semi-definite with k - 1 null directions (constants shifted between potentials), to which all right-hand
sides here are (nearly) orthogonal.
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

# Below this size a factorisation is faster than a few iterations.
DIRECT_SIZE = 400
# Curvature along a direction, relative to that of the diagonal alone, below which it counts as zero.
NULL = 1e-6
# Number of iterations if the host must not read the residual.
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
    partial: Shard | None = None,
) -> Tensor:
    """Solve H x = right for x (b, N), to a residual of rtol: by iteration if H is large, otherwise by factorisation.

    Args:
        pairs: {(l, m): (b, n_l, n_m)} for every l < m.
        marginals: (b, N), concatenated over views.
        dtype: dtype of the factorisation; None means float64.
        fixed: read no value on the host.
        partial: the shard to which these pairs belong; None if they are complete.
    """
    size = marginals.shape[1]
    if size > DIRECT_SIZE:
        solution, fine = conjugate_gradients(
            hessian(pairs, marginals, sizes) if partial is None else partial.hessian(pairs, marginals),
            right.to(marginals.dtype),
            marginals,
            rtol=rtol,
            max_steps=FIXED_ITERATIONS if fixed else min(60, size // 16),
            fixed=fixed,
        )
        if fine:
            return solution
    pairs = pairs if partial is None else partial.pairs(pairs)
    return factorise(pairs, marginals, right, sizes, dtype=dtype or vector_dtype(marginals.device), fixed=fixed)


def hessian(pairs: dict[Edge, Tensor], marginals: Tensor, sizes: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Return the function that multiplies a vector (b, N) by H."""
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
    """Solve by Cholesky factorisation; a relative ridge at the rounding error of the entries fixes the null directions.

    If the entries are so far from those of a coupling that the ridge is not sufficient, it is increased; in the limit
    the diagonal dominates, which is a mean of Sinkhorn updates.
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
    """Return a new matrix (b, N, N) with the pairs above the diagonal; Cholesky does not read the other triangle."""
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
    """Solve by conjugate gradients with diagonal preconditioner; the residual is read rarely, or never (`fixed`)."""
    x = torch.zeros_like(right)
    residual = right
    z = residual / diagonal
    direction = z
    rho = (residual * z).sum(-1, keepdim=True)
    goal = rho * rtol**2
    every = 3 if right.device.type == "cpu" else 10
    tiny = torch.finfo(rho.dtype).tiny
    for step in range(1, max_steps + 1):
        image = multiply(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        # A problem of the batch that is solved exactly has direction 0.
        alpha = rho / curvature.clamp_min(tiny)
        if fixed:  # beyond the goal only rounding errors remain
            scale = (direction.square() * diagonal).sum(-1, keepdim=True)
            alpha = torch.where((rho > goal) & (curvature > NULL * scale), alpha, 0.0)
        x = torch.addcmul(x, alpha, direction)
        residual = torch.addcmul(residual, alpha, image, value=-1)
        z = residual / diagonal
        previous, rho = rho, (residual * z).sum(-1, keepdim=True)
        if not fixed and step % every == 0 and read(rho - goal) <= 0:
            return x, True
        direction = torch.addcmul(z, rho / previous.clamp_min(tiny), direction)
    return x, fixed or read(rho - goal) <= 0
