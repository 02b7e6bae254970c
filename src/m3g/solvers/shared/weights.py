"""Weights, the required marginals of a coupling: validation and concatenation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.costs.coupling import all_equal
from m3g.costs.problem import vector_dtype

# Minimum positive weight, as a fraction of the sum. For a smaller weight, a scaling in float64 might overflow.
MIN_WEIGHT = 1e-100


def marginal_weights(
    weights: Sequence[Tensor] | None, sizes: Sequence[int], batch: Sequence[int], device: torch.device
) -> list[Tensor] | None:
    """Validate the weights of k views, (n_l) or (*batch, n_l), and scale them to a common sum.

    None, which means uniform weights, is returned as None.
    """
    if weights is None:
        return None
    if isinstance(weights, (Tensor, str)) or not isinstance(weights, Sequence) or len(weights) != len(sizes):
        many = isinstance(weights, Sequence) and not isinstance(weights, str)
        got = "a tensor" if isinstance(weights, Tensor) else _checks.described(weights)
        got = f"{len(weights)}" if many else got
        raise ValueError(f"weights must be a sequence of {len(sizes)} tensors, one per view, got {got}.")
    out = [_weights_of_view(weight, l, n, batch, device) for l, (weight, n) in enumerate(zip(weights, sizes))]
    totals = torch.stack(torch.broadcast_tensors(*(weight.sum(-1) for weight in out)))
    different = (totals - totals[0]).abs() > 1e-4 * totals[0]
    if bool(different.any()):
        member = totals.reshape(len(out), -1)[:, int(different.any(0).flatten().nonzero()[0])]
        raise ValueError(f"weights must have the same sum in every view, got sums {member.tolist()}.")
    return [weight * (totals[0] / weight.sum(-1)).unsqueeze(-1) for weight in out]


def _weights_of_view(given: object, l: int, size: int, batch: Sequence[int], device: torch.device) -> Tensor:
    """Return the validated weights of view l in float64: (n_l), or (*batch, n_l)."""
    weight = _checks.real_tensor(given, "weights must be tensors of numbers", f" in view {l}")
    weight = _checks.readable(f"weights of view {l}", weight).to(device, torch.float64)
    if weight.shape[-1:] != (size,):
        raise ValueError(f"weights must have {size} entries in view {l}, got shape {_checks.shape_of(weight)}.")
    if weight.shape[:-1] not in ((), (1,), tuple(batch)):
        raise ValueError(
            f"weights must have shape {(size,)}{f' or {(*batch, size)}' if batch else ''} in view {l}, got shape "
            f"{_checks.shape_of(weight)}."
        )
    wrong = weight[~((weight >= 0) & (weight < math.inf))]
    if wrong.numel():
        raise ValueError(f"weights must be finite numbers of at least 0, got {float(wrong[0])} in view {l}.")
    total = weight.sum(-1, keepdim=True)
    if not bool((total > 0).all()):
        raise ValueError(f"weights must have a positive sum, got only zeros in view {l}.")
    if not bool((total < math.inf).all()):
        raise ValueError(f"weights must have a finite sum, got {float(total.max())} in view {l}.")
    tiny = weight[(weight > 0) & (weight < MIN_WEIGHT * total)]
    if tiny.numel():
        raise ValueError(
            f"weights must be 0 or at least {MIN_WEIGHT:g} times their sum, got {float(tiny[0])} in view {l}."
        )
    return weight


def concatenated_weights(problem: Problem, weights: list[Tensor] | None, dtype: torch.dtype | None = None) -> Tensor:
    """Return the weights of all views, concatenated (b, N), by default in `vector_dtype`; None means uniform."""
    b, device, sizes = problem.num_batch, problem.device, problem.sizes
    dtype = dtype or vector_dtype(device)
    if weights is not None:
        parts = [part.reshape(-1, n).expand(b, n) for part, n in zip(weights, sizes)]
        return torch.cat(parts, 1).to(dtype)
    if all_equal(sizes):
        return torch.full((b, len(sizes) * sizes[0]), 1 / sizes[0], dtype=dtype, device=device)
    return torch.cat([torch.full((b, n), 1 / n, dtype=dtype, device=device) for n in sizes], 1)
