"""Peak memory of a dense solve and its gradient."""

import pytest
import torch

import m3g
import reference
from m3g.costs import as_cost
from solvers.memory import LiveBytes


@pytest.mark.parametrize("epsilon", [0.2, 0.05, 0.02])
@pytest.mark.parametrize(
    ("cost", "n", "k"), [("csd", 96, 3), ("product", 96, 3), ("0.5*cv + product", 96, 3), ("product", 32, 4)]
)
def test_forward_and_backward_allocate_at_most_two_tensors_of_all_tuples(cost, n, k, epsilon):
    views = reference.noisy_views(k, n, 64, dtype=torch.float32).requires_grad_()
    loss = m3g.M3GLoss(epsilon, cost=cost, solver="dense")
    loss(views)  # warm-up: some work is done once per process for tables of this size
    with LiveBytes() as live:
        loss(views).backward()
    # The exponential is computed in place of the cost tensor; a sum of costs or parts of the gradient are added.
    assert 4 * n**k < live.peak < 2 * 4 * n**k + 2 * views.nbytes


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "k"), [(5, 8), (6, 7)])
def test_sums_over_many_views_are_accurate_in_float32(n, k, seed):
    """A single sum over n^(k-2) tuples, a few of which have most of the mass, has an error above the tolerance."""
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(n, 64, generator=generator) + torch.randn(k, n, 64, generator=generator)
    problem = as_cost("cv")(torch.nn.functional.normalize(views, dim=-1))
    solution = m3g.solve(problem, epsilon=0.02, tol=1e-4, solver="dense")
    assert solution.converged, solution
    assert solution.num_steps < 30
