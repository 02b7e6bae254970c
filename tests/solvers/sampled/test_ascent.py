"""Ascent on the dual of a sampled kernel."""

import pytest
import torch

import m3g
from m3g.solvers.sampled.ascent import ascend_dual
from m3g.solvers.sampled.log_kernel import (
    log_kernel_of,
)
from m3g.solvers.sampled.tuple_kernel import sampled_list
from solvers.sampled.kernels import EPSILON, kernel_list, problem_of


@pytest.mark.parametrize("cost", [m3g.CircularVariance(), m3g.CircularStd(), m3g.MultilinearProduct()])
def test_the_gradient_is_exact_with_the_tuples_held_fixed(cost):
    sizes = (6, 6, 6)
    problem = problem_of(sizes, cost=cost)
    kernel = kernel_list("tuples", log_kernel_of(problem, EPSILON), 4)
    samples = kernel.blocks[0].tuples[:, kernel.blocks[0].num_exact :]
    counts = torch.zeros(*samples.shape, dtype=torch.float64)
    target = torch.full((1, 18), 1 / 6, dtype=torch.float64)

    def solved(points):
        other = cost(points.reshape(3, 6, 6))
        log_kernel = log_kernel_of(other, EPSILON)
        kernel = sampled_list(log_kernel, samples, counts, samples[:, :0])
        point = ascend_dual(kernel, target, torch.zeros_like(target), tol=1e-11, max_steps=100).point
        assert float(point.error) < 1e-10
        value = (((point.log_scaling + log_kernel.shift) * EPSILON - EPSILON / 3) * target).sum()
        return value, other.gradient(point.coupling)[0]

    points = problem.tensors[0].detach()
    _, gradient = solved(points)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        direction = torch.randn(points.shape, dtype=torch.float64, generator=generator)
        ahead, behind = solved(points + 1e-5 * direction)[0], solved(points - 1e-5 * direction)[0]
        assert float((ahead - behind) / 2e-5) == pytest.approx(float((gradient * direction).sum()), rel=1e-6)
