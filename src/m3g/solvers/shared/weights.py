"""The marginals that a coupling must have, in the form the solvers use."""

from __future__ import annotations

import torch
from torch import Tensor

from m3g.costs import Problem
from m3g.costs.coupling import all_equal
from m3g.solvers.shared.precision import vector_dtype


def concatenated_weights(problem: Problem, weights: list[Tensor] | None, dtype: torch.dtype | None = None) -> Tensor:
    """The k marginals a_l, one after the other (b, N), in float64 unless a type is given."""
    b, device, sizes = problem.num_batch, problem.device, problem.sizes
    dtype = dtype or vector_dtype(device)
    if weights is not None:
        parts = [part.reshape(-1, n).expand(b, n) for part, n in zip(weights, sizes)]
        return torch.cat(parts, 1).to(dtype)
    if all_equal(sizes):
        return torch.full((b, len(sizes) * sizes[0]), 1 / sizes[0], dtype=dtype, device=device)
    return torch.cat([torch.full((b, n), 1 / n, dtype=dtype, device=device) for n in sizes], 1)
