"""Costs given by a tensor or by a function of k points."""

import torch

import reference
from m3g.costs import as_cost


def test_a_function_of_k_tensors_is_a_cost():
    views = reference.noisy_views(3, 4, 5)
    problem = as_cost(lambda x, y, z: (x * y * z).sum(-1))(views)
    expected = torch.einsum("id,jd,kd->ijk", *views)
    torch.testing.assert_close(problem.dense()[0], expected)
