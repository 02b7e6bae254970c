"""Both forms of the sampled kernel, products and tuples, satisfy the interface."""

import pytest
import torch

from m3g.costs import Coupling, all_edges
from m3g.solvers.sampled.log_kernel import (
    log_kernel_of,
)
from solvers.sampled.kernels import EPSILON, coupling_of, kernel_list, problem_of


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        *((form, sizes) for form in ("products", "tuples", "full") for sizes in [(5, 5, 5), (3, 6, 4), (3, 3, 3, 3)]),
        ("products", (4, 5)),
        ("full", (4, 5)),
    ],
)
def test_marginals_pairs_pull_and_the_full_tensor_agree(form, sizes):
    problem = problem_of(sizes, b=2)
    kernel = kernel_list(form, log_kernel_of(problem, EPSILON), 1, b=2)
    coupling = coupling_of(kernel)
    ((_, tensor),) = coupling.rows()
    k = len(sizes)
    torch.testing.assert_close(tensor.flatten(1).sum(1), torch.ones(2, dtype=torch.float64))
    for l in range(k):
        summed = [m + 1 for m in range(k) if m != l]
        torch.testing.assert_close(coupling.marginal(l), tensor.sum(summed))
    for l, m in all_edges(k):
        summed = [other + 1 for other in range(k) if other not in (l, m)]
        torch.testing.assert_close(coupling.pair(l, m), tensor.sum(summed) if summed else tensor)
    points = problem.tensors[0]
    torch.testing.assert_close(coupling.pull(points), Coupling.pull(coupling, points))
    if form != "products":
        for measure in (coupling, coupling.directional_derivative(points.mean(-1), kernel.half_signs())):
            pulled = measure.weighted_pull(points, torch.exp)
            torch.testing.assert_close(pulled, Coupling.weighted_pull(measure, points, torch.exp))
            torch.testing.assert_close(measure.product_pull(points), Coupling.product_pull(measure, points))
    plain = Coupling.weighted_pull(coupling, points, torch.ones_like)
    torch.testing.assert_close(plain, coupling.pull(points))


@pytest.mark.parametrize("form", ["products", "tuples", "full"])
def test_directional_derivative_matches_finite_differences(form):
    problem = problem_of((4, 3, 5))
    kernel = kernel_list(form, log_kernel_of(problem, EPSILON), 2)
    direction = torch.randn(1, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    coupling = coupling_of(kernel)
    derivative = coupling.directional_derivative(direction, None)
    points = problem.tensors[0]

    def coupling_along(step):
        moved = kernel.with_base(torch.zeros_like(direction)).coupling_at(
            step * direction, torch.ones(1, 1, dtype=torch.float64)
        )
        return moved, (-moved.log_factor + coupling.log_factor).exp()

    (ahead, grown), (behind, shrunk) = coupling_along(1e-5), coupling_along(-1e-5)
    for measure in (lambda c: c.marginals(), lambda c: c.pull(points)):
        difference = (measure(ahead) * grown.reshape(-1) - measure(behind) * shrunk.reshape(-1)) / 2e-5
        torch.testing.assert_close(measure(derivative), difference, atol=1e-7, rtol=1e-5)
