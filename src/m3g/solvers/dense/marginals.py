"""Scalings and marginals of a group of views, from the joint marginal of the group without its own scalings.

Scalings are rows (b, 1, n). The kernel computes joint marginals (`left_sums` and `right_sums` in kernel.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def suffix_products(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return u_l ⊗ … ⊗ u_j (b, 1, n_l ⋯ n_j) for every l, from rows u_1, …, u_j (b, 1, n_l)."""
    out = [rows[-1]]
    for row in reversed(rows[:-1]):
        out.append(_outer(row, out[-1]))
    return out[::-1]


def _outer(first: Tensor, second: Tensor) -> Tensor:
    return (first.mT * second).view(first.shape[0], 1, -1)


def reduced_joints(joint: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Contract a joint marginal (b, 1, n_1 ⋯ n_j) with the scalings of all views before l, for every l.

    The results have shape (b, n_l, n_{l+1} ⋯ n_j). The last one, (b, 1, n_j), is the marginal of the last view without
    its own scaling.
    """
    out = []
    for scaling in scalings[:-1]:
        out.append(joint.view(joint.shape[0], scaling.shape[2], -1))
        joint = torch.bmm(scaling, out[-1])
    return [*out, joint]


def group_marginals(joints: Sequence[Tensor], products: Sequence[Tensor]) -> list[Tensor]:
    """Return the marginal of every view without its own scaling (b, 1, n_l), from the results of `reduced_joints`.

    `products` are the `suffix_products` of the same scalings.
    """
    return [*(torch.bmm(after, joint.mT) for joint, after in zip(joints, products[1:])), joints[-1]]


def group_update(
    joints: Sequence[Tensor], targets: Sequence[Tensor], rounds: int = 1
) -> tuple[list[Tensor], list[Tensor]]:
    """Update the scaling of each view of a group, from the last to the first, so that its marginal equals its target.

    Return the scalings and their `suffix_products`. `joints` are the `reduced_joints` of the scalings before the
    update. `targets` are the required marginals (b, 1, n_l). A group of several views is updated `rounds` times.
    """
    if len(targets) == 1:
        scalings = [targets[0] / joints[0]]
        return scalings, scalings
    first = joints[0].mT
    for remaining in range(rounds - 1, -1, -1):
        scalings, products = group_update(joints[1:], targets[1:])
        scalings = [targets[0] / torch.bmm(products[0], first), *scalings]
        if remaining:
            joints = [joints[0], *reduced_joints(torch.bmm(scalings[0], joints[0]), scalings[1:])]
    return scalings, [_outer(scalings[0], products[0]), *products]


def sums(parts: Sequence[Tensor]) -> Tensor:
    """Return the flattened sum v_1 ⊕ … ⊕ v_j of vectors: (b, n_1), …, (b, n_j) -> (b, n_1 ⋯ n_j)."""
    out = parts[0]
    for part in parts[1:]:
        out = (out.unsqueeze(2) + part.unsqueeze(1)).flatten(1)
    return out
