"""Pair kernels K_lm = exp(-D_lm / eps), or their logarithms if the range is too large, and initial scalings.

D_lm is the cost between the points of views l and m (`PairwiseProblem`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from m3g.costs import PairwiseProblem
from m3g.costs.coupling import Edge
from m3g.costs.problem import vector_dtype
from m3g.solvers.shared.precision import DOUBLE_RANGE, SINGLE_RANGE, SINGLE_TOLERANCE, largest_magnitude
from m3g.solvers.shared.weights import concatenated_weights

# Tolerance below which log scalings are float64.
SINGLE_VECTOR_TOLERANCE = 5e-5
# Largest `Kernels.reach` for which one step of `balance` is sufficient.
NEARLY_CONSTANT = 30.0


class Kernels(NamedTuple):
    """Pair kernels and weights of a problem.

    Attributes:
        matrices: kernels {(l, m): (b, n_l, n_m)}, or their logarithms if `in_range` is False.
        groups: the same, concatenated as in `LogKernels`.
        target: (b, N), the weights, in the dtype of the log scalings.
        shift: (b, N), in float64 if the device supports it. The potentials are eps · h + shift for log scalings h. None
            means 0.
        in_range: whether `matrices` are kernels. Otherwise they are logarithms, because products of kernels would
            exceed the range of float64, or because logarithms were requested. The range is checked only if values may
            be read on the host. The limit is that of float64 even on a device without float64: if a solve on such a
            device exceeds the range of float32, `Factored` repeats it with logarithms.
        reach: an upper bound on the absolute value of the exponent of a tuple; 0 if no value was read on the host.
    """

    matrices: dict[Edge, Tensor]
    groups: list[Tensor]
    target: Tensor
    shift: Tensor | None
    in_range: bool
    reach: float

    @property
    def dtype(self) -> torch.dtype:
        return self.groups[0].dtype


def pair_kernels(
    problem: PairwiseProblem,
    weights: list[Tensor] | None,
    *,
    epsilon: float,
    tol: float,
    read_values: bool,
    logs: bool = False,
) -> Kernels:
    """Return the kernels of a problem, or their logarithms with `logs`.

    The kernels have the dtype of the problem, or float64 if `tol` requires it. With `read_values`, the range of the
    exponents is read on the host. For a large range, the result is in float64, or consists of logarithms.
    """
    dtype = problem.dtype
    double = vector_dtype(problem.device)
    if dtype == torch.float32 and tol < SINGLE_TOLERANCE:
        dtype = double
    exponents = problem.log_kernels(epsilon, dtype)
    reach = 0.0
    if read_values:
        reach = max(map(largest_magnitude, exponents.groups)) * len(problem.edges)
        if (logs or reach > SINGLE_RANGE) and dtype == torch.float32 and dtype != double:
            dtype = double
            exponents = problem.log_kernels(epsilon, dtype)
            # The value in float32 may have overflowed.
            reach = max(map(largest_magnitude, exponents.groups)) * len(problem.edges)
    scaling_dtype = dtype if tol >= SINGLE_VECTOR_TOLERANCE else double
    target = concatenated_weights(problem, weights, scaling_dtype)
    in_range = not (logs or reach > DOUBLE_RANGE)
    groups = [group.exp_() for group in exponents.groups] if in_range else exponents.groups
    return Kernels(problem.by_edge(groups), groups, target, exponents.shift, in_range, reach)


def balanced_start(problem: PairwiseProblem, kernels: Kernels) -> Tensor:
    """Return initial log scalings (b, N): log weights, plus log scalings that balance the kernel of each edge."""
    b, k = problem.num_batch, problem.k
    log_target = kernels.target.log()
    dtype = log_target.dtype
    # One step balances nearly constant kernels. A reach of 0 means that no value was read.
    steps = 1 if 0 < kernels.reach < NEARLY_CONSTANT else 2
    groups = kernels.groups
    if len(groups) == 1 and len(problem.edges) > 1:
        left, right = (_cast(part, dtype).view(-1, b, problem.sizes[0]) for part in balance(groups[0], steps))
        rows, columns = _edge_views(problem)
        by_view = log_target.view(b, k, -1).transpose(0, 1)
        start = by_view.index_add(0, rows, left, alpha=-1).index_add_(0, columns, right, alpha=-1)
        return start.transpose(0, 1).reshape(b, -1)
    sums: list[Tensor | None] = [None] * k
    for edge, group in zip(problem.edges, groups):
        for view, part in zip(edge, balance(group, steps)):
            part, so_far = _cast(part.view(b, -1), dtype), sums[view]
            sums[view] = part if so_far is None else so_far + part
    parts = [log_target.new_zeros(b, n) if part is None else part for part, n in zip(sums, problem.sizes)]
    return log_target - torch.cat(parts, 1)


def _edge_views(problem: PairwiseProblem) -> tuple[Tensor, ...]:
    """Return the first and the second views of all edges."""
    if problem.complete:
        return torch.triu_indices(problem.k, problem.k, 1, device=problem.device).unbind(0)
    return tuple(torch.tensor(ends, device=problem.device) for ends in zip(*problem.edges))


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert to `dtype`, without calling an operator if the tensor has this dtype."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def balance(kernels: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return -log u (b, n, 1) and -log v (b, m, 1) such that diag(u) K diag(v) has nearly constant row and column sums.

    u and v are the result of `steps` steps of the two-view Sinkhorn algorithm for kernels K (b, n, m), up to a constant
    factor, which has no effect because solvers first scale the leading view to its weights.
    """
    transposed = kernels.mT
    left = kernels.mean(2, keepdim=True)
    right = torch.bmm(transposed, left.reciprocal())
    for _ in range(steps - 1):
        left = torch.bmm(kernels, right.reciprocal_())
        right = torch.bmm(transposed, left.reciprocal())
    return left.log_(), right.log_()
