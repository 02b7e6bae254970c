"""The coupling of a list of tuples: the mass of its samples, and draws from it."""

import pytest
import torch

from m3g.solvers.sampled.log_kernel import log_kernel_of
from m3g.solvers.sampled.tuple_coupling import add_at, add_rows, sum_by_index
from solvers.sampled.kernels import EPSILON, coupling_of, draws_of, kernel_list, problem_of

SIZES = (4, 3, 5)


@pytest.mark.parametrize("form", ["tuples", "full"])
def test_draws_have_the_distribution_of_the_coupling(form):
    kernel = kernel_list(form, log_kernel_of(problem_of(SIZES), EPSILON), 0)
    coupling = coupling_of(kernel)
    ((_, tensor),) = coupling.rows()
    drawn = coupling.draw(40_000, draws_of(1))[0]
    indices = (drawn[:, 0] * 3 + drawn[:, 1]) * 5 + drawn[:, 2]
    frequencies = torch.bincount(indices, minlength=60) / len(indices)
    torch.testing.assert_close(frequencies.double(), tensor.flatten(), atol=0.012, rtol=0)


def test_sample_weights_are_the_masses_of_the_samples():
    kernel = kernel_list("tuples", log_kernel_of(problem_of(SIZES, b=2), EPSILON), 0, b=2, anchored=False)
    coupling = coupling_of(kernel)
    weights = coupling.sample_weights()
    assert weights.shape == (2, kernel.num_samples)
    # The derivative with respect to the logarithms of the weights of all samples, which are half +1 and half -1.
    signs = [sign.abs() for sign in kernel.half_signs()]
    derivative = coupling.directional_derivative(torch.zeros(2, sum(SIZES), dtype=torch.float64), signs)
    torch.testing.assert_close(derivative.marginal(0).sum(1), weights.sum(1))


def test_values_are_added_at_their_index():
    index = torch.tensor([[0, 2, 2], [1, 1, 1]])
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    expected = torch.tensor([[1.0, 0.0, 5.0], [0.0, 15.0, 0.0]])
    torch.testing.assert_close(sum_by_index(values, index, 3), expected)
    out = torch.zeros(2, 3)
    add_at(out, values, torch.stack([index, index.flip(1)], 2))
    torch.testing.assert_close(out, torch.tensor([[4.0, 0.0, 8.0], [0.0, 30.0, 0.0]]))
    rows = torch.zeros(2, 3, 2)
    add_rows(rows, values.unsqueeze(2).expand(-1, -1, 2), index)
    torch.testing.assert_close(rows, expected.unsqueeze(2).expand(-1, -1, 2))
