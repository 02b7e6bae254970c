"""Scalings and marginals of a group of views, from the joint marginal of the group; vectors are rows (b, 1, n)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def outer_row(rows: Sequence[Tensor]) -> Tensor:
    """(b, 1, n_1), …, (b, 1, n_j) -> (b, 1, n_1 ⋯ n_j)."""
    out = rows[0]
    for row in rows[1:]:
        out = (out.mT * row).flatten(1).unsqueeze(1)
    return out


def group_marginals(joint: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Return the marginal (b, 1, n_l), without its own scaling, of every view of a joint (b, 1, n_1 ⋯ n_j)."""
    if len(scalings) == 1:
        return [joint]
    first, *rest = scalings
    table = joint.view(joint.shape[0], first.shape[2], -1)
    first_marginal = torch.bmm(table, outer_row(rest).mT).mT
    return [first_marginal, *group_marginals(torch.bmm(first, table), rest)]


def group_update(joint: Tensor, scalings: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor]:
    """Return the scalings of a group after scaling each of its views, the last first, to its marginal `wanted`."""
    if len(wanted) == 1:
        return [wanted[0] / joint]
    table = joint.view(joint.shape[0], wanted[0].shape[2], -1)
    rest = group_update(torch.bmm(scalings[0], table), scalings[1:], wanted[1:])
    return [wanted[0] / torch.bmm(table, outer_row(rest).mT).mT, *rest]
