"""Products Π_l x_l[t_l] over the views of a tuple, feature by feature, and their derivatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from m3g.costs.contraction import balanced_split, overwritable, parts_of


def two_groups(points: Tensor, sizes: Sequence[int], rows: slice | None = None) -> tuple[list[Tensor], list[Tensor]]:
    """Split points (b, N, d) into the views (b, n_l, d) of a leading group A and those of the other group B.

    The number of tuples of A plus that of B is minimal. `rows` restricts view 0 to some rows.
    """
    parts = list(torch.split_with_sizes(points, list(sizes), 1))
    if rows is not None:
        parts[0] = parts[0][:, rows]
    lead = balanced_split(sizes)
    return parts[:lead], parts[lead:]


def pull_from_rows(
    slabs: Iterable[tuple[slice, Tensor]],
    sizes: Sequence[int],
    points: Tensor,
    moves: Tensor | None = None,
    *,
    disposable: bool = False,
) -> Tensor:
    """Return Σ_t P(t) Π_{m ≠ l} x_m[t_m] over the tuples t with t_l = i, for every point i of every view l: (b, N, d).

    With `moves` (b, N, d), return its derivative along `moves` at fixed P. P is given in slabs of view 0. If
    `disposable` is true, the slabs may be overwritten, which saves memory; with `moves`, they never are.
    """
    _, second = two_groups(points, sizes)
    features_b = features(second)
    _, second_moves = two_groups(points if moves is None else moves, sizes)
    change_b = None if moves is None else features_change(second, second_moves)
    # Transposed, (b, d, β) for the β tuples of B: the matrix product features_aᵀ · slab is up to 1.4 times as fast as
    # its transpose.
    pulled_b = pulled_change_b = torch.zeros_like(features_b.mT)
    leading: list[Tensor] = []
    rest: list[Tensor] | None = None
    (b, _, d), beta = points.shape, features_b.shape[1]
    # If A has several views, `features_a` is a new tensor, and the product of slab and `features_b` overwrites it. A
    # disposable slab also serves as the buffer of `pull`, which would otherwise be another tensor as large as
    # `features_a`.
    reused = moves is None and balanced_split(sizes) > 1 and overwritable(points)
    disposable = disposable and reused and b == 1 and d <= beta
    # Every tuple of A has β entries in the slab, and d numbers in each of the temporary tensors.
    for rows, slab in parts_of(slabs, (1 if disposable else 2) * d / beta):
        first, _ = two_groups(points, sizes, rows)
        matrix = slab.reshape(b, -1, beta).to(points.dtype)
        features_a = features(first)
        pulled_b = torch.baddbmm(pulled_b, features_a.mT, matrix)
        if reused and overwritable(matrix):
            torch.bmm(matrix, features_b, out=features_a)
            grads = pull(first, features_a, matrix.view(-1)[: features_a.numel()] if disposable else None)
        elif moves is None or change_b is None:
            grads = pull(first, torch.bmm(matrix, features_b))
        else:
            first_moves, _ = two_groups(moves, sizes, rows)
            grads = pull_change(first, first_moves, torch.bmm(matrix, features_b), torch.bmm(matrix, change_b))
            moved = features_change(first, first_moves)
            pulled_change_b = torch.baddbmm(pulled_change_b, moved.mT, matrix)
        del features_a  # free it before that of the next part is computed
        leading.append(grads[0])
        rest = grads[1:] if rest is None else [x + y for x, y in zip(rest, grads[1:])]
    assert rest is not None, "a coupling has rows"
    grad_b = pulled_b.mT
    last = pull(second, grad_b) if moves is None else pull_change(second, second_moves, grad_b, pulled_change_b.mT)
    return torch.cat([torch.cat(leading, 1), *rest, *last], 1)


def products_without_each(factors: Sequence[Tensor]) -> list[Tensor]:
    """Return Π_{m ≠ l} x_m for every l, as new tensors; all factors x_m have the same shape."""
    before, after = [torch.ones_like(factors[0])], [torch.ones_like(factors[0])]
    for factor, last in zip(factors[:-1], reversed(factors[1:])):
        before.append(before[-1] * factor)
        after.append(after[-1] * last)
    return [left.mul_(right) for left, right in zip(before, reversed(after))]


def features(parts: Sequence[Tensor]) -> Tensor:
    """Return the entrywise product of the points of every tuple: (b, n_1, d), …, (b, n_j, d) -> (b, n_1 ⋯ n_j, d)."""
    out = parts[0]
    for part in parts[1:]:
        out = (out.unsqueeze(2) * part.unsqueeze(1)).flatten(1, 2)
    return out


def features_change(parts: Sequence[Tensor], moves: Sequence[Tensor]) -> Tensor:
    """Return the derivative of `features` along `moves`."""
    out, change = parts[0], moves[0]
    for part, move in zip(parts[1:], moves[1:]):
        change = (change.unsqueeze(2) * part.unsqueeze(1) + out.unsqueeze(2) * move.unsqueeze(1)).flatten(1, 2)
        out = (out.unsqueeze(2) * part.unsqueeze(1)).flatten(1, 2)
    return change


def pull(parts: Sequence[Tensor], grad: Tensor, buffer: Tensor | None = None) -> list[Tensor]:
    """Return the gradients (b, n_l, d) of ⟨grad, features(parts)⟩ with respect to the parts.

    `grad` is overwritten, and so is `buffer`, which has as many entries.
    """
    first, rest = parts[0], parts[1:]
    if not rest:
        return [grad]
    table = grad.unflatten(1, (first.shape[1], -1))
    product = torch.mul(table, features(rest).unsqueeze(1), out=None if buffer is None else buffer.view(table.shape))
    first_grad = product.sum(2)
    return [first_grad, *pull(rest, table.mul_(first.unsqueeze(2)).sum(1))]


def pull_change(parts: Sequence[Tensor], moves: Sequence[Tensor], grad: Tensor, grad_move: Tensor) -> list[Tensor]:
    """Return the derivative of `pull` along `moves` and `grad_move`."""
    if len(parts) == 1:
        return [grad_move]
    first, move = parts[0].unsqueeze(2), moves[0].unsqueeze(2)
    rest, rest_move = features(parts[1:]).unsqueeze(1), features_change(parts[1:], moves[1:]).unsqueeze(1)
    table, table_move = (each.unflatten(1, (parts[0].shape[1], -1)) for each in (grad, grad_move))
    first_grad = (table_move * rest + table * rest_move).sum(2)
    down, down_move = (table * first).sum(1), (table_move * first + table * move).sum(1)
    return [first_grad, *pull_change(parts[1:], moves[1:], down, down_move)]
