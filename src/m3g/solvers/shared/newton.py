"""The Newton system of the dual: H = [diag(m_l) on the diagonal blocks, P_lm off it], N x N with N = Σ n_l.

H is positive semi-definite with k - 1 null directions (a constant moved from one potential to another), on which
every right-hand side that arises here vanishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from m3g.costs import block_matrix
from m3g.costs.coupling import Edge
from m3g.solvers.shared.precision import vector_dtype

# Below this size a factorisation is quicker than a handful of iterations.
DIRECT_SIZE = 260


def solve_newton(
    pairs: dict[Edge, Tensor], marginals: Tensor, right: Tensor, sizes: Sequence[int], *, rtol: float
) -> Tensor:
    """x (b, N) with H x = right, to a residual of rtol: by iteration where H is large, else by factorisation.

    Args:
        pairs: {(l, m): (b, n_l, n_m)} for every l < m.
        marginals: (b, N), the views one after the other.
    """
    size = marginals.shape[1]
    if size > DIRECT_SIZE:
        matrix = block_matrix(pairs, marginals, sizes)
        solution, fine = conjugate_gradients(
            lambda v: torch.bmm(matrix, v.unsqueeze(-1)).squeeze(-1),
            right.to(matrix.dtype),
            marginals,
            rtol=rtol,
            max_steps=min(60, size // 16),
        )
        if fine:
            return solution
    return factorise(pairs, marginals, right, sizes)


def factorise(pairs: dict[Edge, Tensor], marginals: Tensor, right: Tensor, sizes: Sequence[int]) -> Tensor:
    """By Cholesky in float64, the last view (whose block is diagonal) being eliminated first.

    A ridge at the rounding error of the entries fixes the null directions.
    """
    double = vector_dtype(marginals.device)
    last, rest = len(sizes) - 1, sum(sizes[:-1])
    inner = {edge: pair for edge, pair in pairs.items() if edge[1] != last}
    to_last = torch.cat([pairs[l, last] for l in range(last)], 1).to(double)
    marginals, right = marginals.to(double), right.to(double)
    ridge = float(8 * torch.finfo(pairs[0, 1].dtype).eps / max(sizes))
    diagonal = marginals[:, rest:] + ridge
    scaled = to_last / diagonal.unsqueeze(1)
    schur = block_matrix(inner, marginals[:, :rest], sizes[:-1])
    schur.baddbmm_(scaled, to_last.transpose(1, 2), alpha=-1)
    first = torch.baddbmm(right[:, :rest, None], scaled, right[:, rest:, None], alpha=-1)
    for power in range(5):
        schur.diagonal(dim1=1, dim2=2).add_(ridge * 30**power)
        factor, info = torch.linalg.cholesky_ex(schur)
        if not bool(info.any()):
            break
    else:
        raise RuntimeError("the Newton system could not be factorised: its entries are not those of a coupling")
    first = torch.cholesky_solve(first, factor)
    second = right[:, rest:, None] - torch.bmm(to_last.transpose(1, 2), first)
    return torch.cat([first.squeeze(-1), second.squeeze(-1) / diagonal], 1)


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
