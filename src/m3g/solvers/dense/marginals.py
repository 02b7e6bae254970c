"""Scalings and marginals of a group of views, from the joint marginal of the group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m3g.costs.contraction import outer


def group_marginals(joint: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Return the marginal (b, n_l), without its own scaling, of every view of an unscaled joint (b, n_1 ⋯ n_j)."""
    if len(scalings) == 1:
        return [joint]
    first, *rest = scalings
    table = joint.view(joint.shape[0], first.shape[1], -1)
    of_first = torch.bmm(table, outer(rest).unsqueeze(2)).squeeze(2)
    return [of_first, *group_marginals(torch.bmm(first.unsqueeze(1), table).squeeze(1), rest)]


def group_update(joint: Tensor, scalings: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor]:
    """Return the scalings of a group after scaling each of its views, the last first, to its marginal `wanted`."""
    if len(wanted) == 1:
        return [wanted[0] / joint]
    table = joint.view(joint.shape[0], wanted[0].shape[1], -1)
    rest = group_update(torch.bmm(scalings[0].unsqueeze(1), table).squeeze(1), scalings[1:], wanted[1:])
    return [wanted[0] / torch.bmm(table, outer(rest).unsqueeze(2)).squeeze(2), *rest]
