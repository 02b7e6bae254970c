"""The proposal of tuples: unbiased estimates of the kernel, and anchors that support a coupling."""

import pytest
import torch

from m3g.costs import as_cost
from m3g.solvers.sampled.log_kernel import (
    log_kernel_of,
)
from m3g.solvers.sampled.proposals import anchors_of
from solvers.sampled.kernels import EPSILON, coupling_of, draws_of, kernel_list, problem_of

FORMS = [("products", "cv"), ("tuples", "cv"), ("tuples", "csd"), ("tuples", "product"), ("tuples", "cv + product[:4]")]


@pytest.mark.parametrize(("form", "cost"), FORMS)
@pytest.mark.parametrize("sizes", [(3, 3, 3, 3), (2, 4, 3)])
def test_the_kernel_is_estimated_without_bias(form, cost, sizes):
    problem = problem_of(sizes, cost=as_cost(cost))
    log_kernel = log_kernel_of(problem, EPSILON)
    source, draws = draws_of(0), []
    for repeat in range(400):
        coupling = coupling_of(kernel_list(form, log_kernel, source, anchored=repeat % 2 == 0))
        ((_, tensor),) = coupling.rows()
        draws.append(tensor * (-coupling.log_factor).exp().reshape(-1, *[1] * len(sizes)))
    draws = torch.cat(draws)
    shift = torch.zeros(1, *[1] * len(sizes), dtype=torch.float64)
    for l, part in enumerate(log_kernel.shift.split(list(sizes), 1)):
        shift = shift + part.reshape([1] + [-1 if m == l else 1 for m in range(len(sizes))])
    true = (shift - problem.dense() / EPSILON).exp()
    standard_error = draws.std(0) / len(draws) ** 0.5
    score = (draws.mean(0) - true[0]).abs() / (standard_error + 1e-9 * true[0])
    assert float(score.max()) < 5
    assert abs(float(draws.mean(0).sum() / true.sum()) - 1) < 0.05


def test_anchors_support_a_coupling_with_the_weights():
    generator = torch.Generator().manual_seed(0)
    sizes = (3, 5, 2)
    weights = [torch.rand(2, n, generator=generator, dtype=torch.float64) for n in sizes]
    target = torch.cat([weight / weight.sum(1, keepdim=True) for weight in weights], 1)
    anchors = anchors_of(target, sizes)
    ends = torch.cat([part.cumsum(1) for part in target.split(list(sizes), 1)], 1).sort(1).values
    masses = ends.diff(dim=1, prepend=torch.zeros(2, 1, dtype=torch.float64))
    for l, part in enumerate(target.split(list(sizes), 1)):
        mass = torch.zeros_like(part).scatter_add_(1, anchors[..., l], masses)
        torch.testing.assert_close(mass, part)
