"""The dense solver against Algorithm 1: every cost, many views, slabs, batches, masks, and a very small epsilon."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import m3g
import reference
from m3g.costs import as_cost

COSTS = {
    "csd": "csd",
    "product": "product",
    "composed": "0.5*cv + product[2:]",
    "function": lambda *z: (torch.stack(torch.broadcast_tensors(*z)).sum(0) ** 2).prod(-1),
}


def problem_of(sizes, cost="product", dtype=torch.float64, seed=0, d=6):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, d, generator=generator, dtype=torch.float64) for n in sizes]
    return as_cost(cost)([torch.nn.functional.normalize(view, dim=-1).to(dtype) for view in views])


@pytest.mark.parametrize("limit", [None, 1], ids=["kept", "slabs"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 5, 2), (5, 6), (2, 3, 1, 4)], ids=str)
def test_every_cost_supports_different_sizes_and_weights(sizes, cost, limit, monkeypatch):
    if limit:
        monkeypatch.setattr("m3g.solvers.shared.couplings.SLAB_BYTES", 1)
    problem = problem_of(sizes, COSTS[cost])
    generator = torch.Generator().manual_seed(1)
    weights = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in sizes]
    weights = [weight / weight.sum() for weight in weights]
    solution = m3g.solve(problem, epsilon=0.3, tol=1e-8, solver=m3g.Dense(memory_limit=limit), weights=weights)
    reference.assert_agrees(solution, problem.dense()[0], 0.3, atol=3e-8, weights=weights)


@pytest.mark.parametrize("k", range(2, 9))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_to_eight_views_agree_with_the_reference(k, dtype):
    problem = problem_of([3 if k < 7 else 2] * k, "csd", dtype)
    tol = 1e-4 if dtype == torch.float32 else 1e-9
    solution = m3g.solve(problem, epsilon=0.3, tol=tol, solver="dense")
    assert solution.value.dtype == solution.coupling().dtype == dtype
    reference.assert_agrees(solution, problem.dense()[0], 0.3, atol=3 * tol)


@pytest.mark.parametrize("epsilon", [0.05, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("cost", ["csd", "product", "composed"])
def test_a_small_epsilon_approaches_the_best_polymatching(cost, epsilon):
    views = reference.noisy_views(3, 5, 8, noise=2.0, dtype=torch.float32)
    problem = as_cost(COSTS[cost])(views)
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-3, solver="dense")
    assert solution.converged
    assert torch.isfinite(solution.coupling()).all()
    best = m3g.solve(problem, epsilon=0.0, solver="linear-program").value
    # The entropy of a coupling is at most that of the uniform one, log 125, and at least that of a matching, log 5.
    assert best - epsilon * 6 - 2e-3 <= solution.value <= best - epsilon * 2.5 + 2e-3


def test_newton_requires_few_steps_where_sinkhorn_requires_many_sweeps():
    problem = problem_of([8] * 4, "product", seed=3)
    dense = m3g.solve(problem, epsilon=0.02, tol=1e-6, solver="dense")
    slow = m3g.solve(problem, epsilon=0.02, tol=1e-6, solver="sinkhorn")
    assert dense.converged
    assert 5 * dense.num_steps < slow.num_steps
    torch.testing.assert_close(dense.value, slow.value, atol=1e-6, rtol=0)


def test_newton_steps_do_not_shift_potentials_between_views():
    # At the rounding error of float32 the steps continue, and such shifts would add up until scalings overflow.
    views = reference.noisy_views(7, 6, 64, dtype=torch.float32)
    solution = m3g.solve(as_cost("cv")(views), epsilon=0.02, tol=1e-4, solver=m3g.Dense(max_steps=60))
    means = torch.stack([part.mean() for part in solution.potentials])
    assert float(means.max() - means.min()) < 1
    assert bool(solution.error < 1e-3)


def test_batches_masks_and_a_teacher_are_supported():
    student, teacher = (torch.stack([reference.noisy_views(3, 4, 5, seed=s + t) for s in (0, 1)]) for t in (0, 7))
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[0, 1, 2] = mask[1, 0, 3] = False
    for cost in ("csd", "product", "0.5*cv[:2] + product[2:]"):
        gap, expected = (
            m3g.M3GLoss(0.2, cost=cost, tol=1e-9, solver=solver)(student, mask=mask, teacher=teacher)
            for solver in ("dense", "sinkhorn")
        )
        torch.testing.assert_close(gap, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_costs_that_are_not_finite_are_named(bad):
    cost = torch.rand(3, 3, 3)
    cost[1, 1, 1] = bad
    with pytest.raises(ValueError, match="problem must be finite"):
        m3g.solve(cost, epsilon=0.1, solver="dense")


def test_too_few_steps_are_reported():
    solution = m3g.solve(problem_of([6] * 3), epsilon=0.01, tol=1e-8, solver=m3g.Dense(max_steps=1))
    assert solution.result is m3g.Result.OUT_OF_STEPS


@pytest.mark.parametrize("cost", ["csd", "product", "0.5*cv + product"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_fixed_steps_read_no_value_on_the_host(k, dtype, cost):
    loss = m3g.M3GLoss(0.2, cost=cost, solver=m3g.Dense(fixed_steps=6), tol=1e-6)
    with FakeTensorMode(allow_non_fake_inputs=False):
        views = torch.randn(k, 4, 3, dtype=dtype, requires_grad=True)
        options = {"mask": torch.ones(k, 4, dtype=torch.bool), "teacher": torch.randn(k, 4, 3, dtype=dtype)}
        loss(views, **options).backward()
        assert views.grad.shape == views.shape
    views = reference.noisy_views(k, 4, 3, dtype=dtype)
    exact = m3g.matching_gap(views.double(), cost=cost, epsilon=0.2, tol=1e-9).to(dtype)
    torch.testing.assert_close(loss(views), exact, atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.vmap(loss)(torch.stack([views, views])), exact.expand(2), atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("cost", ["csd", "0.5*cv + product[1:]"])
def test_fixed_steps_compile_into_one_graph(cost):
    """`tests/losses/test_accelerators.py` compiles it with the default backend, which is slow."""
    loss = m3g.M3GLoss(0.2, cost=cost, solver=m3g.Dense(fixed_steps=3))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    views = reference.noisy_views(3, 6, 4, dtype=torch.float32).requires_grad_()
    plain, value = loss(views), compiled(views)
    torch.testing.assert_close(value, plain, atol=1e-4, rtol=1e-4)
    gradients = [torch.autograd.grad(each, views)[0] for each in (plain, value)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)
