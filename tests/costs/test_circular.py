"""The costs of the paper, off the sphere and with views of different sizes."""

import pytest
import torch

import m3g
import reference


def test_circular_variance_of_vectors_off_the_sphere_is_the_definition():
    views = 3 * torch.randn(3, 4, 5, dtype=torch.float64)
    expected = reference.cost_tensor(reference.circular_variance, views)
    torch.testing.assert_close(m3g.CircularVariance()(views).dense()[0], expected)


@pytest.mark.parametrize("sizes", [(5, 5, 5), (4, 6)], ids=str)
def test_known_unit_vectors_give_the_same_costs_and_potentials(sizes):
    views = [torch.nn.functional.normalize(torch.randn(2, n, 3, dtype=torch.float64), dim=-1) for n in sizes]
    cost = m3g.CircularVariance(scale="algorithm2")
    plain, known = cost(views), cost(views, unit=True)
    assert known.log_kernels(0.1, torch.float64).shift is None
    assert torch.allclose(known.dense(), plain.dense())
    first, second = (m3g.solve(problem, epsilon=0.1, tol=1e-8) for problem in (plain, known))
    assert torch.allclose(first.value, second.value)
    for one, other in zip(first.potentials, second.potentials):
        assert torch.allclose(one, other)


def test_views_may_have_different_sizes():
    views = [torch.randn(n, 3, dtype=torch.float64) for n in (2, 4, 3)]
    problem = m3g.CircularVariance()(views)
    torch.testing.assert_close(problem.dense()[0], reference.cost_tensor(reference.circular_variance, views))
