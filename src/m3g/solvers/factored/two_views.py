"""Two views: plain Sinkhorn scalings, which are often enough and cost the fewest operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Sweeps between two reads of the error: of nearly flat kernels, and of others.
FLAT_SWEEPS, SWEEPS = 2, 6
FLAT_REACH = 5.0
# Where the error is at most this many times the tolerance, as many sweeps again are tried: else Newton is quicker.
WORTH_SWEEPING = 4.0


class TwoViews(NamedTuple):
    """Scalings u (b, n, 1) and v (b, m, 1) of a kernel, with which its rows are right; `error` is of the columns."""

    kernel: Tensor
    left: Tensor
    right: Tensor
    error: Tensor
    num_steps: int

    def log_scaling(self) -> Tensor:
        return torch.cat([self.left, self.right], 1).log_().squeeze(-1)

    def pair(self, l: int, m: int) -> Tensor:
        """The coupling."""
        return self.kernel * self.left * self.right.mT


def scaled(kernel: Tensor, target: Tensor, *, tol: float, reach: float, max_steps: int) -> tuple[TwoViews, bool]:
    """Sweeps over a kernel (b, n, m) towards its marginals (b, n + m), and whether they are within `tol`."""
    a, b = target.unsqueeze(-1).split([kernel.shape[1], kernel.shape[2]], 1)
    transposed = kernel.mT
    left = a / kernel.sum(2, keepdim=True)
    columns = torch.bmm(transposed, left)
    num_steps, last = 0, False
    while True:
        chunk = min(FLAT_SWEEPS if reach < FLAT_REACH else SWEEPS, max_steps - num_steps)
        for _ in range(chunk):
            right = b / columns
            left = a / torch.bmm(kernel, right)
            columns = torch.bmm(transposed, left)
        num_steps += chunk
        error = torch.linalg.vector_norm(torch.addcmul(b, right, columns, value=-1), ord=1, dim=(1, 2))
        worst = error.item() if error.numel() == 1 else error.max().item()
        if worst <= tol or last or not worst <= WORTH_SWEEPING * tol or num_steps >= max_steps:
            return TwoViews(kernel, left, right, error, num_steps), worst <= tol
        last = True
