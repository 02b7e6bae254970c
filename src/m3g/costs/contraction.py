"""Pair marginals of a scaled tensor by products with vectors.

All pair marginals of P = K ∘ (u_1 ⊗ … ⊗ u_k) require three passes over K. The first contracts the first view and gives
the pairs of all others. The second contracts the last view and gives the pairs of the first view with all but the last.
The third contracts all views between the first and the last. Each result is smaller than K by a factor of n, and no
pass writes n^k numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

Pairs = dict[tuple[int, int], Tensor]
# Slabs of more bytes are read in at least four parts of at most this size.
WHOLE_BYTES, PART_BYTES = 2**18, 2**21


def pair_marginals(tensor: Tensor, scalings: Sequence[Tensor], views: Sequence[int]) -> Pairs:
    """Return all pair marginals of a tensor (b, n_1, …, n_j) times scalings (b, n_l); `views` are the view indices."""
    pairs = first_pairs(tensor, scalings, views)
    if len(views) > 2:
        pairs.update(pair_marginals(without_first(tensor, scalings[0]), scalings[1:], views[1:]))
    return pairs


def first_pairs(tensor: Tensor, scalings: Sequence[Tensor], views: Sequence[int]) -> Pairs:
    """Return the pair marginals of the first view with every other view."""
    both = (views[0], views[-1])
    lead, last = scalings[0].unsqueeze(-1), scalings[-1].unsqueeze(-2)
    if len(views) == 2:
        return {both: tensor * lead * last}
    b, n, m = tensor.shape[0], tensor.shape[1], tensor.shape[-1]
    between = outer(scalings[1:-1]).view(b, 1, 1, -1)
    joint = torch.matmul(between, tensor.reshape(b, n, -1, m)).view(b, n, m)
    return {both: (joint * lead).mul_(last), **first_pairs(without_last(tensor, last), scalings[:-1], views[:-1])}


def without_first(tensor: Tensor, scaling: Tensor) -> Tensor:
    """Σ_i u[i] T[i, …]: (b, n_2, …, n_j)."""
    return torch.bmm(scaling.unsqueeze(1), tensor.flatten(2)).view(tensor.shape[0], *tensor.shape[2:])


def without_last(tensor: Tensor, scaling: Tensor) -> Tensor:
    """Σ_i T[…, i] u[i] for u (b, 1, n): (b, n_1, …, n_{j-1})."""
    b, n = tensor.shape[0], tensor.shape[-1]
    return torch.bmm(tensor.reshape(b, -1, n), scaling.reshape(b, n, 1)).view(tensor.shape[:-1])


def outer(scalings: Sequence[Tensor]) -> Tensor:
    """(b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j)."""
    out = scalings[0]
    for scaling in scalings[1:]:
        out = (out.unsqueeze(2) * scaling.unsqueeze(1)).flatten(1)
    return out


def additive(singles: Sequence[Tensor], pairs: Pairs) -> Tensor:
    """Σ_l s_l[i_l] + Σ_{l<m} G_lm[i_l, i_m] as a tensor (b, n_1, …, n_k), with two passes over it."""
    k = len(singles)
    total = singles[-1]
    for l in range(k - 2, -1, -1):
        b, n = singles[l].shape
        cross = pairs[l, k - 1] + singles[l].unsqueeze(2)
        for m in range(k - 2, l + 1, -1):
            matrix = pairs[l, m]
            cross = cross.unsqueeze(2) + matrix.reshape(b, n, matrix.shape[2], *[1] * (cross.ndim - 2))
        if l + 1 == k - 1:
            total = cross + total.unsqueeze(1)
            continue
        total = cross.unsqueeze(2) + total.unsqueeze(1)
        total += pairs[l, l + 1].reshape(*total.shape[:3], *[1] * (total.ndim - 3))
    return total


def balanced_split(sizes: Sequence[int]) -> int:
    """Return the number of leading views that minimises the total number of tuples of both groups of views."""
    k = len(sizes)
    if all(n == sizes[0] for n in sizes):  # a product would specialise a symbolic size
        return (k + 1) // 2
    best, least = 1, math.prod(sizes)
    for lead in range(1, k):
        count = math.prod(sizes[:lead]) + math.prod(sizes[lead:])
        if count < least:
            best, least = lead, count
    return best


def parts_of(slabs: Iterable[tuple[slice, Tensor]]) -> Iterator[tuple[slice, Tensor]]:
    """Split slabs (b, rows, …) into parts of some rows, so that intermediate results are small."""
    for rows, slab in slabs:
        step = rows.stop - rows.start
        if not torch.compiler.is_compiling():
            size = slab.numel() * slab.element_size()
            if size > WHOLE_BYTES:
                step = max(1, min(step // 4, PART_BYTES * step // size))
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            yield slice(start, stop), slab[:, start - rows.start : stop - rows.start]
