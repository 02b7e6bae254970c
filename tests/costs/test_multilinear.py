"""Products over the views of a tuple, and their derivatives, against automatic differentiation."""

import math

import pytest
import torch

from m3g.costs import multilinear

SIZES = [(3,), (3, 4), (3, 2, 4), (2, 3, 2, 2)]


def points_of(sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, n, 3, generator=generator, dtype=torch.float64) for n in sizes]


def literal(*parts):
    letters = "abcd"[: len(parts)]
    return torch.einsum(",".join(f"y{a}z" for a in letters) + f"->y{letters}z", *parts).flatten(1, len(parts))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_features_are_products_of_the_points_of_every_tuple(sizes):
    parts, tangents = points_of(sizes), points_of(sizes, seed=1)
    torch.testing.assert_close(multilinear.features(parts), literal(*parts))
    expected = torch.func.jvp(literal, tuple(parts), tuple(tangents))[1]
    torch.testing.assert_close(multilinear.features_change(parts, tangents), expected)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_pulls_are_gradients_of_the_features(sizes):
    parts, tangents = points_of(sizes), points_of(sizes, seed=1)
    grad, grad_tangent = (torch.randn(2, math.prod(sizes), 3, dtype=torch.float64) for _ in range(2))

    def gradient(grad, *parts):
        return torch.func.vjp(literal, *parts)[1](grad)

    expected, change = torch.func.jvp(gradient, (grad, *parts), (grad_tangent, *tangents))
    torch.testing.assert_close(multilinear.pull_change(parts, tangents, grad, grad_tangent), list(change))
    torch.testing.assert_close(multilinear.pull(parts, grad.clone()), list(expected))


def test_products_of_all_other_factors_support_zeros():
    factors = [torch.tensor([2.0, 0.0]), torch.tensor([3.0, 5.0]), torch.tensor([4.0, 0.0])]
    products = multilinear.products_without_each(factors)
    assert [product.tolist() for product in products] == [[12.0, 0.0], [8.0, 0.0], [6.0, 0.0]]


@pytest.mark.parametrize("rows", [1, 3])
def test_pulls_from_slabs_equal_the_gradient_for_the_whole_coupling(rows):
    sizes = (3, 2, 4)
    parts = points_of(sizes)
    weights = torch.rand(2, *sizes, dtype=torch.float64)
    slabs = [(slice(i, i + rows), weights[:, i : i + rows]) for i in range(0, 3, rows)]
    pulled = multilinear.pull_from_rows(slabs, sizes, torch.cat(parts, 1))
    grad = weights.reshape(2, -1, 1).expand(-1, -1, 3)
    torch.testing.assert_close(pulled, torch.cat(torch.func.vjp(literal, *parts)[1](grad), 1))
