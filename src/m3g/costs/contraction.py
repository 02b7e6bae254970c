"""Pair marginals of a scaled tensor by products with vectors.

For k > 2, all pair marginals of P = K ∘ (u_1 ⊗ … ⊗ u_k) require three passes over the tensor K:

1. Contracting the first view gives the pairs of all other views.
2. Contracting the last view gives the pairs of the first view with all views but the last.
3. Contracting all views in between gives the pair of the first and the last view.

Each result is smaller than K by a factor of n or more, and no pass writes n^k numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

Pairs = dict[tuple[int, int], Tensor]
# A slab is a tensor, or a block of its rows (axis 1). Slabs larger than WHOLE_BYTES are processed in parts of up to
# about PART_BYTES. The temporary results of a part have up to about TEMPORARY_PART times the size of the slab. Parts
# small enough for the cache of a core are slower.
WHOLE_BYTES, PART_BYTES, TEMPORARY_PART = 2**18, 2**23, 0.75
# Minimum number of entries of a matrix for which a matrix–vector product is divided among threads.
PARALLEL = 2**18


def pair_marginals(tensor: Tensor, scalings: Sequence[Tensor], views: Sequence[int]) -> Pairs:
    """Return all pair marginals of a tensor (b, n_1, …, n_j) multiplied by scalings (b, n_l).

    `views` are the indices of the j views; their pairs are the keys of the result.
    """
    pairs = scaled_first(first_pairs(tensor, scalings[1:], views), scalings[0])
    if len(views) > 2:
        pairs.update(pair_marginals(without_first(tensor, scalings[0]), scalings[1:], views[1:]))
    return pairs


def pair_marginals_of_slabs(slabs: Iterable[tuple[slice, Tensor]], scalings: Sequence[Tensor]) -> Pairs:
    """Return `pair_marginals` of a tensor given in slabs (b, rows, n_2, …), which together contain all its rows."""
    k, slab_pairs, tail = len(scalings), [], None
    for rows, slab in slabs:
        lead = scalings[0][:, rows]
        slab_pairs.append(scaled_first(first_pairs(slab, scalings[1:], range(k)), lead))
        if k > 2:
            contracted = without_first(slab, lead)
            tail = contracted if tail is None else tail + contracted
        del slab  # free it before the next one is computed
    pairs = {edge: concatenated_rows([part[edge] for part in slab_pairs]) for edge in slab_pairs[0]}
    return pairs if tail is None else {**pairs, **pair_marginals(tail, scalings[1:], range(1, k))}


def first_pairs(tensor: Tensor, others: Sequence[Tensor], views: Sequence[int]) -> Pairs:
    """Return the pair marginals of the first view with every other view, as new tensors.

    They are scaled by `others`, the scalings (b, n_l) of the other views, but not by that of the first view.
    """
    both, last = (views[0], views[-1]), others[-1].unsqueeze(1)
    if len(views) == 2:
        return {both: tensor * last}
    # The views in between are contracted one by one: a single sum over their tuples would have a large rounding error.
    joint = tensor
    for scaling in others[:-1]:
        joint = torch.matmul(scaling[:, None, None], joint.flatten(3)).view(*tensor.shape[:2], *joint.shape[3:])
    return {both: joint.mul_(last), **first_pairs(without_last(tensor, last), others[:-1], views[:-1])}


def scaled_first(pairs: Pairs, scaling: Tensor) -> Pairs:
    """Multiply every pair (b, n, n_m) in place by the scaling (b, n) of its first view."""
    column = scaling.unsqueeze(2)
    return {edge: pair.mul_(column) for edge, pair in pairs.items()}


def concatenated_rows(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors along axis 1; a single tensor is returned without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)


def without_first(tensor: Tensor, scaling: Tensor) -> Tensor:
    """Return Σ_i u[i] T[i, …] (b, n_2, …, n_j) for a tensor T (b, n_1, …, n_j) and a scaling u (b, n_1)."""
    return row_times(scaling.unsqueeze(1), tensor.flatten(2)).view(tensor.shape[0], *tensor.shape[2:])


def without_last(tensor: Tensor, scaling: Tensor) -> Tensor:
    """Return Σ_i T[…, i] u[i] (b, n_1, …, n_{j-1}) for a tensor T (b, n_1, …, n_j) and a scaling u (b, 1, n_j)."""
    return times_row(tensor.reshape(tensor.shape[0], -1, tensor.shape[-1]), scaling).view(tensor.shape[:-1])


def row_times(row: Tensor, matrix: Tensor) -> Tensor:
    """Return r M (b, 1, β) for a row r (b, 1, α) and a matrix M (b, α, β)."""
    parts = _num_parts(matrix)
    if parts == 1:
        return torch.bmm(row, matrix)
    return torch.bmm(row.view(parts, 1, -1), matrix.view(parts, -1, matrix.shape[2])).sum(0, keepdim=True)


def times_row(matrix: Tensor, row: Tensor) -> Tensor:
    """Return (M rᵀ)ᵀ (b, 1, α) for a matrix M (b, α, β) and a row r (b, 1, β)."""
    parts = _num_parts(matrix)
    if parts == 1:
        return torch.bmm(row, matrix.mT)
    return torch.bmm(row.expand(parts, -1, -1), matrix.view(parts, -1, matrix.shape[2]).mT).view(1, 1, -1)


def _num_parts(matrix: Tensor) -> int:
    """Return the number of row blocks of a matrix whose products with a vector are computed in parallel.

    On a CPU, torch computes a single matrix–vector product in one thread, but divides a batch of products among
    threads.
    """
    if torch.compiler.is_compiling() or matrix.shape[0] > 1 or matrix.numel() < PARALLEL or matrix.device.type != "cpu":
        return 1
    threads = torch.get_num_threads()
    if threads == 1 or not matrix.is_contiguous():
        return 1
    return next((parts for parts in range(threads, 4 * threads) if matrix.shape[1] % parts == 0), 1)


def outer(scalings: Sequence[Tensor]) -> Tensor:
    """Return the flattened outer product of scalings: (b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j)."""
    out = scalings[0]
    for scaling in scalings[1:]:
        out = (out.unsqueeze(2) * scaling.unsqueeze(1)).flatten(1)
    return out


def additive(singles: Sequence[Tensor], pairs: Pairs) -> Tensor:
    """Return Σ_l s_l[i_l] + Σ_{l<m} G_lm[i_l, i_m] as a tensor (b, n_1, …, n_k), in two passes over this tensor.

    Args:
        singles: s_l (b, n_l), one per view.
        pairs: G_lm (b, n_l, n_m), for all pairs l < m.
    """
    k = len(singles)
    total = singles[-1]
    for l in range(k - 2, -1, -1):
        *others, last = [pairs[l, m] for m in range(l + 1, k)]
        total = with_view(total, [*others, last + singles[l].unsqueeze(2)])
    return total


def with_view(rest: Tensor, pairs: Sequence[Tensor]) -> Tensor:
    """Return rest[i_2, …, i_k] + Σ_m pairs_m[i_1, i_m] as a tensor (b, n_1, …, n_k).

    This adds a leading view, with its pair terms (b, n_1, n_m), to the terms of the other views.
    """
    b, n, _ = pairs[0].shape
    cross = pairs[-1]
    for matrix in reversed(pairs[1:-1]):
        cross = cross.unsqueeze(2) + matrix.reshape(b, n, matrix.shape[2], *[1] * (cross.ndim - 2))
    if len(pairs) == 1:
        return cross + rest.unsqueeze(1)
    total = cross.unsqueeze(2) + rest.unsqueeze(1)
    return total.add_(pairs[0].reshape(b, n, pairs[0].shape[2], *[1] * (total.ndim - 3)))


def balanced_split(sizes: Sequence[int]) -> int:
    """Return the number of views in the first of two groups of consecutive views.

    The division minimises the number of tuples of the first group plus that of the second.
    """
    k = len(sizes)
    if all(n == sizes[0] for n in sizes):  # comparing products would specialise symbolic sizes
        return (k + 1) // 2
    best, least = 1, math.prod(sizes)
    for lead in range(1, k):
        count = math.prod(sizes[:lead]) + math.prod(sizes[lead:])
        if count < least:
            best, least = lead, count
    return best


def parts_of(slabs: Iterable[tuple[slice, Tensor]], temporaries: float = 1.0) -> Iterator[tuple[slice, Tensor]]:
    """Split slabs (b, rows, …) into parts with fewer rows, for a caller that allocates temporary results per part.

    `temporaries` is the number of temporary numbers per entry of a part.
    """
    for rows, slab in slabs:
        step = rows.stop - rows.start
        if not torch.compiler.is_compiling():
            size = slab.numel() * slab.element_size()
            if size > WHOLE_BYTES:
                step = -(-step // math.ceil(max(temporaries / TEMPORARY_PART, size / PART_BYTES)))
        for start in range(rows.start, rows.stop, step):
            stop = min(start + step, rows.stop)
            yield slice(start, stop), slab[:, start - rows.start : stop - rows.start]


def overwritable(tensor: Tensor) -> bool:
    """Return whether results may be written to existing memory, which torch.compile and torch.func do not support."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
