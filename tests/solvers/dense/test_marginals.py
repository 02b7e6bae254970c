"""Scalings and marginals of a group of views against sums over the joint tensor."""

import math

import pytest
import torch

from m3g.costs.coupling import sum_onto
from m3g.solvers.dense.marginals import group_marginals, group_update, reduced_joints, suffix_products

LETTERS = "abcd"


def group(sizes):
    generator = torch.Generator().manual_seed(0)
    joint = torch.rand(2, *sizes, generator=generator, dtype=torch.float64) + 0.1
    scalings = [torch.rand(2, 1, n, generator=generator, dtype=torch.float64) + 0.1 for n in sizes]
    return joint, scalings


def scaled(joint, scalings):
    for l, scaling in enumerate(scalings):
        joint = joint * scaling.view(2, *[-1 if a == l else 1 for a in range(joint.ndim - 1)])
    return joint


@pytest.mark.parametrize("sizes", [(3,), (3, 4), (3, 2, 4), (2, 3, 2, 3)], ids=str)
def test_marginals_are_sums_over_the_joint(sizes):
    joint, scalings = group(sizes)
    products = suffix_products(scalings)
    letters = LETTERS[: len(sizes)]
    for l, product in enumerate(products):
        rest = letters[l:]
        outer = torch.einsum(",".join("z" + a for a in rest) + f"->z{rest}", *(u.squeeze(1) for u in scalings[l:]))
        torch.testing.assert_close(product, outer.reshape(2, 1, math.prod(sizes[l:])))
    marginals = group_marginals(reduced_joints(joint.view(2, 1, -1), scalings), products)
    tensor = scaled(joint, scalings)
    for l, (marginal, scaling) in enumerate(zip(marginals, scalings)):
        expected = sum_onto(tensor, (l,))
        torch.testing.assert_close((marginal * scaling).squeeze(1), expected)


@pytest.mark.parametrize("sizes", [(3,), (3, 4), (3, 2, 4)], ids=str)
def test_an_update_scales_the_views_one_after_the_other_beginning_with_the_last(sizes):
    joint, scalings = group(sizes)
    targets = [torch.full((2, 1, n), 1 / n, dtype=torch.float64) for n in sizes]
    updated, products = group_update(reduced_joints(joint.view(2, 1, -1), scalings), targets)
    expected = [scaling.clone() for scaling in scalings]
    for l in reversed(range(len(sizes))):
        marginal = sum_onto(scaled(joint, expected), (l,)).unsqueeze(1)
        expected[l] = expected[l] * targets[l] / marginal
    for one, other in zip(updated, expected):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(products[0], suffix_products(updated)[0])
