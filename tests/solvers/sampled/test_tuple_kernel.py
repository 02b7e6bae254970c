"""Costs that are not sums over pairs, sampled as a list of tuples."""

import pytest
import torch

import m3g
from m3g.costs import as_cost
from m3g.solvers.sampled.log_kernel import (
    log_kernel_of,
)
from m3g.solvers.sampled.tuple_kernel import full_list
from solvers.noisy import gap_and_gradient, noisy_views
from solvers.sampled.kernels import EPSILON, coupling_of, problem_of

JOINT = ["csd", "product", "0.5*cv + 0.5*product", "cv[:0.5] + product[0.5:]", "csd + 0.3*cosine"]


@pytest.mark.parametrize(
    ("k", "n", "noise", "epsilon", "dtype"),
    [
        (3, 32, 1.0, 0.05, torch.float32),
        (3, 24, 0.3, 0.13, torch.float64),
        (4, 12, 2.0, 0.3, torch.float32),
        (5, 8, 1.0, 0.07, torch.float32),
    ],
)
@pytest.mark.parametrize("cost", JOINT)
def test_agrees_with_the_dense_solver_within_its_own_error(cost, k, n, noise, epsilon, dtype):
    views = noisy_views(k, n, noise, dtype=dtype)
    exact, true_gradient, _ = gap_and_gradient(views.double(), epsilon, m3g.Dense(), 1e-6, cost=as_cost(cost))
    ratios = []
    for seed in range(4):
        solver = m3g.Sampled(seed=seed, form="tuples")
        gap, gradient, solution = gap_and_gradient(views, epsilon, solver, cost=as_cost(cost))
        assert solution.converged
        assert gap.dtype == gradient.dtype == dtype
        assert abs(float(gap - exact)) < 3 * float(solution.standard_error)
        assert float(solution.standard_error) < 0.01 * float(exact)
        assert float(solution.relative_gradient_error) < 0.1
        error = float((gradient.double() - true_gradient).norm() / true_gradient.norm())
        ratios.append(error / float(solution.relative_gradient_error))
    # The error of the gradient is estimated from one draw, so it holds in the root mean square.
    assert sum(ratio**2 for ratio in ratios) / len(ratios) < 2**2


@pytest.mark.parametrize("cost", ["csd", "product", "0.5*cv + 0.5*product"])
def test_every_problem_of_a_batch_is_solved_correctly(cost):
    views = noisy_views(3, 10, batch=(2, 2))
    exact, true_gradient, _ = gap_and_gradient(views, 0.1, m3g.Dense(), 1e-5, cost=as_cost(cost))
    solver = m3g.Sampled(rank=2048, seed=0, form="tuples")
    gap, gradient, solution = gap_and_gradient(views, 0.1, solver, cost=as_cost(cost))
    assert gap.shape == solution.standard_error.shape == (2, 2)
    assert bool(((gap - exact).abs() < 3 * solution.standard_error).all())
    error = (gradient - true_gradient).flatten(2).norm(dim=2) / true_gradient.flatten(2).norm(dim=2)
    assert bool((error < 2 * solution.relative_gradient_error).all())


def test_opposite_views_are_clamped_and_finite():
    views = torch.nn.functional.normalize(torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(0)), dim=-1)
    views = torch.cat([views, -views, torch.zeros_like(views)])
    gap, gradient, solution = gap_and_gradient(views, 0.5, m3g.Sampled(rank=512, seed=0), cost=m3g.CircularStd())
    exact, _, _ = gap_and_gradient(views, 0.5, m3g.Sinkhorn(), 1e-5, cost=m3g.CircularStd())
    assert bool(gradient.isfinite().all())
    assert abs(float(gap - exact)) < 3 * float(solution.standard_error) + 1e-3


@pytest.mark.parametrize("cost", ["csd", "cv[:0.5] + product[0.5:]"])
def test_a_sampled_joint_cost_trains(cost):
    torch.manual_seed(0)
    points = torch.randn(4, 24, 8) + 2 * torch.randn(24, 8)
    nets = torch.nn.ModuleList(torch.nn.Linear(8, 6) for _ in range(4))
    loss = m3g.M3GLoss(epsilon=0.2, cost=cost, solver=m3g.Sampled(rank=2048))
    optimiser = torch.optim.Adam(nets.parameters(), lr=0.03)
    values = []
    for _ in range(12):
        value = loss(torch.stack([net(view) for net, view in zip(nets, points)]))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        values.append(value.item())
    assert loss.last.solver == "sampled"
    assert values[-1] < 0.7 * values[0]


@pytest.mark.parametrize(("cost", "name"), [("csd", "CircularStdProblem"), ("product", "ProductProblem")])
def test_products_are_rejected_for_joint_costs(cost, name):
    with pytest.raises(ValueError, match=f"form must be 'auto' or 'tuples' for a {name}, got 'products'"):
        m3g.solve(as_cost(cost)(noisy_views(3, 4)), epsilon=1.0, solver=m3g.Sampled(form="products"))


def test_a_sum_with_a_function_is_an_error():
    cost = m3g.CircularStd() + as_cost(lambda x, y, z: (x * y * z).sum(-1))
    with pytest.raises(ValueError, match=r"cost must be a named cost, .* got SumProblem"):
        m3g.solve(cost(noisy_views(3, 4)), epsilon=1.0, solver="sampled")


def test_a_full_list_is_the_kernel():
    problem = problem_of((3, 4, 2), b=2)
    log_kernel = log_kernel_of(problem, EPSILON)
    kernel = full_list(log_kernel)
    ((_, tensor),) = coupling_of(kernel).rows()
    shift = sum(
        part.reshape([2] + [-1 if m == l else 1 for m in range(3)])
        for l, part in enumerate(log_kernel.shift.split([3, 4, 2], 1))
    )
    dense = (shift - problem.dense() / EPSILON).exp()
    torch.testing.assert_close(tensor, dense / dense.sum((1, 2, 3), keepdim=True))
    assert kernel.exact
    assert coupling_of(kernel).sample_weights().shape == (2, 0)
