"""Scalings and marginals of a group of views, from the joint marginal of the group; vectors are rows (b, 1, n)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def suffix_products(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return u_l ⊗ … ⊗ u_j (b, 1, n_l ⋯ n_j) of rows u_1, …, u_j (b, 1, n) for every l."""
    out = [rows[-1]]
    for row in reversed(rows[:-1]):
        out.append(_outer(row, out[-1]))
    return out[::-1]


def _outer(first: Tensor, second: Tensor) -> Tensor:
    return (first.mT * second).view(first.shape[0], 1, -1)


def reduced_joints(joint: Tensor, scalings: Sequence[Tensor]) -> list[Tensor]:
    """Contract a joint marginal (b, 1, n_1 ⋯ n_j) with the scalings of all views before l, for every l.

    The results have shape (b, n_l, n_{l+1} ⋯ n_j). The last one, (b, 1, n_j), is the marginal of the last view.
    """
    out = []
    for scaling in scalings[:-1]:
        out.append(joint.view(joint.shape[0], scaling.shape[2], -1))
        joint = torch.bmm(scaling, out[-1])
    return [*out, joint]


def group_marginals(joints: Sequence[Tensor], products: Sequence[Tensor]) -> list[Tensor]:
    """Return the marginal (b, 1, n_l), without its own scaling, of every view from `reduced_joints`.

    `products` are the `suffix_products` of the same scalings.
    """
    return [*(torch.bmm(after, joint.mT) for joint, after in zip(joints, products[1:])), joints[-1]]


def group_update(joints: Sequence[Tensor], wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Scale each view of a group, the last first, to its marginal `wanted`, and return scalings and suffix products.

    `joints` are the `reduced_joints` of the scalings before the update.
    """
    scalings = [wanted[-1] / joints[-1]]
    products = list(scalings)
    for joint, marginal in zip(reversed(joints[:-1]), reversed(wanted[:-1])):
        scalings.append(marginal / torch.bmm(products[-1], joint.mT))
        products.append(_outer(scalings[-1], products[-1]))
    return scalings[::-1], products[::-1]
