"""The factored solver: few operators, nothing kept, every graph, every epsilon, one compiled graph."""

import gc
import weakref

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import m3g
import reference
from m3g.solvers.factored.solver import RangeWarning


def operators(call):
    """Top-level ATen operators of one call."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
    return sum(event.cpu_parent is None and event.name.startswith("aten::") for event in recorded.events())


@pytest.mark.parametrize(
    ("n", "k", "epsilon", "most"), [(64, 2, 0.05, 60), (64, 3, 0.05, 130), (32, 4, 0.05, 150), (96, 3, 0.03, 250)]
)
def test_a_solve_takes_few_operators(n, k, epsilon, most):
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(1, n, 64, generator=generator) + torch.randn(k, n, 64, generator=generator)
    problem = m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1))
    assert m3g.solve(problem, epsilon=epsilon).converged
    assert operators(lambda: m3g.solve(problem, epsilon=epsilon)) <= most


@pytest.mark.parametrize("graph", [{(0, 1): 1.0, (1, 2): 1.0}, {(0, 1): 1.0, (0, 2): 1.0}], ids=["chain", "star"])
@pytest.mark.parametrize("epsilon", [0.05, 0.01])
def test_graphs_with_missing_edges_converge_in_few_steps(graph, epsilon):
    problem = m3g.PairwiseCost("sqeuclidean", weights=graph)(reference.noisy_views(3, 8))
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-5)
    assert solution.converged
    assert solution.num_steps < 40


@pytest.mark.parametrize(("k", "n"), [(2, 12), (3, 8), (4, 5)])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-4])
def test_an_epsilon_past_the_range_of_float64_is_solved_in_the_log_domain(k, n, epsilon):
    problem = m3g.CircularVariance(scale="algorithm2")(reference.noisy_views(k, n, 4, noise=2.0))
    with pytest.warns(RangeWarning, match="works in the log domain"):
        solution = m3g.solve(problem, epsilon=epsilon)
    assert solution.result is m3g.Result.CONVERGED
    exact = float(m3g.solve(problem, epsilon=0, solver="linear-program").value)
    # The entropy term is between -eps (k log n + 1) and 0.
    assert exact - epsilon * (k * torch.tensor(float(n)).log() + 1) - 1e-6 <= float(solution.value) <= exact + 1e-6


@pytest.mark.parametrize("differentiable", [False, True])
def test_nothing_is_kept_after_a_solve(differentiable):
    views = reference.noisy_views(3, 6).requires_grad_()
    gc.disable()
    try:
        solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.1, differentiable=differentiable)
        pair = solution.pair_marginal(0, 1)
        held = [weakref.ref(solution), weakref.ref(solution.flat_potentials), weakref.ref(pair)]
        del solution, pair
        assert [each() for each in held] == [None] * 3  # without the garbage collector: no reference cycle
    finally:
        gc.enable()


def test_a_solution_is_frozen_and_not_touched_by_the_next_solve():
    first = m3g.solve(m3g.CircularVariance()(reference.noisy_views(4, 6)), epsilon=0.1)
    before = [first.pair_marginal(l, m).clone() for l, m in ((0, 1), (1, 2), (2, 3))]
    m3g.solve(m3g.CircularVariance()(reference.noisy_views(4, 6, seed=1)), epsilon=0.1)
    for (l, m), pair in zip(((0, 1), (1, 2), (2, 3)), before):
        assert torch.equal(first.pair_marginal(l, m), pair)
    with pytest.raises(AttributeError):
        first.tol = 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler
@pytest.mark.parametrize(("k", "extras"), [(2, ""), (4, "mask teacher")])
def test_fixed_steps_trace_to_one_graph(k, extras):
    torch._dynamo.reset()
    views = torch.randn(k, 4, 3, requires_grad=True)
    mask = torch.ones(k, 4, dtype=torch.bool)
    mask[0, 0] = False
    options = {"mask": mask, "teacher": torch.randn(k, 4, 3)} if extras else {}
    loss = m3g.M3GLoss(solver=m3g.Factored(fixed_steps=3))
    plain = loss(views, **options)
    (expected,) = torch.autograd.grad(plain, views)
    value = torch.compile(loss, fullgraph=True, backend="aot_eager")(views, **options)
    torch.testing.assert_close(value, plain)
    torch.testing.assert_close(torch.autograd.grad(value, views)[0], expected)
