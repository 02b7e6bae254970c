"""The marginals that a coupling must have, in the form the solvers use."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import Problem
from m3g.solvers.shared.precision import vector_dtype


def concatenated_weights(problem: Problem, weights: list[Tensor] | None) -> tuple[Tensor, Tensor]:
    """The k marginals a_l, one after the other (b, N), and their logarithms. Not to be written to."""
    if weights is None:
        return _uniform(problem.num_batch, problem.sizes, problem.device)
    b, dtype = problem.num_batch, vector_dtype(problem.device)
    parts = [part.to(dtype).reshape(-1, n).expand(b, n) for part, n in zip(weights, problem.sizes)]
    target = torch.cat(parts, 1)
    return target, target.log()


def _uniform(num_batch: int, sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    dtype = vector_dtype(device)
    if len(set(sizes)) == 1:
        target = torch.full((num_batch, sum(sizes)), 1 / sizes[0], dtype=dtype, device=device)
    else:
        entries = [1 / n for n in sizes for _ in range(n)]
        target = torch.tensor(entries, dtype=dtype, device=device).expand(num_batch, -1)
    return target, target.log()
