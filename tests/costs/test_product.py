"""The multilinear product: missing views, derivatives by matrix products, and its scale."""

import itertools

import pytest
import torch

import m3g
import reference
from m3g.costs.coupling import TensorCoupling


def random_problem(sizes, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=generator, dtype=torch.float64) for n in sizes]


SIZES = [(3, 4), (3, 3, 3), (2, 5, 3), (3, 2, 4, 2), (2, 3, 2, 2, 3)]


class Slabs(TensorCoupling):
    """A coupling given in slabs of one row each."""

    def rows(self):
        for i in range(self.tensor.shape[1]):
            yield slice(i, i + 1), self.tensor[:, i : i + 1]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_dense_tensor_and_its_slabs_equal_the_formula(sizes):
    views = random_problem(sizes)
    problem = m3g.MultilinearProduct()(views)
    expected = reference.cost_tensor(reference.multilinear_product, views)
    torch.testing.assert_close(problem.dense()[0], expected)
    torch.testing.assert_close(problem.slab(slice(1, 2))[0], expected[1:2])


@pytest.mark.parametrize("in_slabs", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_derivatives_are_those_of_the_formula(sizes, in_slabs):
    views, tangents = random_problem(sizes), random_problem(sizes, seed=1)
    problem = m3g.MultilinearProduct()(views)
    weights = torch.randn(1, *sizes, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    coupling = (Slabs if in_slabs else TensorCoupling)(weights)
    letters = "abcdefgh"[: len(sizes)]
    formula = ",".join(letter + "z" for letter in letters) + "->" + letters

    def tensor(points):
        return -(3 ** (len(sizes) / 2 - 1)) * torch.einsum(formula, *points.split(list(sizes)))

    points, direction = torch.cat(views), torch.cat(tangents)
    slope = torch.func.grad(lambda x: (weights[0] * tensor(x)).sum())
    gradient, gradient_change = torch.func.jvp(slope, (points,), (direction,))
    (computed,) = problem.gradient(coupling)
    torch.testing.assert_close(computed[0], gradient)
    (computed,) = problem.gradient_change(coupling, [direction.unsqueeze(0)])
    torch.testing.assert_close(computed[0], gradient_change)
    ((axes, change),) = problem.change([direction.unsqueeze(0)]).items()
    assert axes == tuple(range(len(sizes)))
    torch.testing.assert_close(change[0], torch.func.jvp(tensor, (points,), (direction,))[1])


def test_the_product_is_over_the_present_views():
    views = reference.noisy_views(3, 4, 5)
    mask = torch.tensor([[True, False, True, False], [True, True, False, False], [True, True, True, False]])
    dense = m3g.MultilinearProduct()(views, mask=mask).dense()[0]
    for index in itertools.product(range(4), repeat=3):
        present = [bool(mask[l, i]) for l, i in enumerate(index)]
        expected = reference.multilinear_product(*[views[l, i] for l, i in enumerate(index)], present=present)
        torch.testing.assert_close(dense[index], expected)


def test_a_missing_point_has_no_gradient():
    views = reference.noisy_views(3, 4, 5).requires_grad_()
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2] = False
    m3g.matching_gap(views, cost="product", mask=mask, epsilon=0.2).backward()
    assert float(views.grad[1, 2].abs().max()) == 0
    assert float(views.grad[1, 1].abs().max()) > 0


def test_the_spread_of_the_product_on_the_sphere_is_that_of_a_cosine_for_every_k():
    for k, d in itertools.product((2, 3, 5), (16, 64)):
        points = torch.nn.functional.normalize(torch.randn(k, 6, d, generator=torch.Generator().manual_seed(k)), dim=-1)
        spread = float(m3g.MultilinearProduct()(points).dense().std())
        assert 0.5 < spread * d**0.5 < 2


def test_the_product_detects_dependence_that_no_pair_of_views_shows():
    """The third view is the sign of the product of the first two: any two views are independent."""
    signs = torch.tensor(list(itertools.product([1.0, -1.0], repeat=6)), dtype=torch.float64)[::3]
    views = torch.stack([signs, signs.roll(7, 0), signs * signs.roll(7, 0)])
    mismatched = torch.stack([views[0], views[1], views[2].roll(1, 0)])
    gaps = {
        cost: [float(m3g.matching_gap(x, cost=cost, epsilon=0.1)) for x in (views, mismatched)]
        for cost in ("product", "cv")
    }
    assert 4 * gaps["product"][0] < gaps["product"][1]
    assert gaps["cv"][1] < 1.2 * gaps["cv"][0]
