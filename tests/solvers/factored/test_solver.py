"""The factored solver: number of operators, memory after a solve, graphs, epsilons, weights, threads."""

import gc
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import m3g
import reference


def operators(call):
    """Top-level ATen operators of one call."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        call()
    return sum(event.cpu_parent is None and event.name.startswith("aten::") for event in recorded.events())


@pytest.mark.parametrize(
    ("n", "k", "epsilon", "max_operators"),
    [(64, 2, 0.05, 60), (64, 3, 0.05, 130), (32, 4, 0.05, 150), (96, 3, 0.03, 250)],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_solve_takes_few_operators(n, k, epsilon, max_operators, seed):
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(1, n, 64, generator=generator) + torch.randn(k, n, 64, generator=generator)
    problem = m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1))
    assert m3g.solve(problem, epsilon=epsilon).converged
    assert operators(lambda: m3g.solve(problem, epsilon=epsilon)) <= max_operators


def live_tensors():
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def resident_bytes():
    """Return the current memory of the process on Linux, elsewhere its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.slow
def test_200_solves_of_changing_shapes_do_not_increase_the_memory():
    def solve(i):
        k, n = (2, 160 + i % 40) if i % 3 == 0 else (3, 64 + i % 40) if i % 3 == 1 else (4, 20 + i % 20)
        views = torch.randn(k, n, 16, generator=torch.Generator().manual_seed(i)).requires_grad_()
        m3g.matching_gap(views, epsilon=0.1).backward()

    for i in range(120):  # every shape once, because the allocator caches memory for each
        solve(i)
    tensors, memory = live_tensors(), resident_bytes()
    for i in range(200):
        solve(i)
    assert live_tensors() <= tensors
    # A matrix of n² or a slab of n³ entries per solve would exceed this.
    assert resident_bytes() - memory < 16 * 2**20


def test_solves_in_four_threads_equal_those_one_after_the_other():
    problems = [m3g.CircularVariance()(reference.noisy_views(2 + i % 3, 10 + i, seed=i)) for i in range(24)]

    def solve(problem):
        solution = m3g.solve(problem, epsilon=0.05, tol=1e-6)
        return solution.value, solution.pair_marginal(0, 1)

    expected = [solve(problem) for problem in problems]
    with ThreadPoolExecutor(4) as threads:
        for solution, reference_solution in zip(threads.map(solve, problems), expected):
            torch.testing.assert_close(solution, reference_solution, rtol=1e-12, atol=1e-12)


def test_fixed_steps_read_no_value_but_report_the_error():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 10, dtype=torch.float32))
    solution = m3g.solve(problem, epsilon=0.05, solver=m3g.Factored(fixed_steps=4))
    assert solution.num_steps == 4
    assert float(solution.error) < 1e-4
    assert solution.converged


@pytest.mark.filterwarnings("ignore::m3g.solvers.RangeWarning")
@pytest.mark.parametrize(
    ("cost", "epsilon", "k", "n"), [("sqeuclidean", 0.01, 2, 12), ("cosine", 0.008, 2, 12), ("cosine", 0.008, 3, 9)]
)
def test_skewed_weights_at_a_small_epsilon_converge(cost, epsilon, k, n):
    for seed in range(4):
        problem = m3g.costs.as_cost(cost)(reference.noisy_views(k, n, 6, noise=0.1, seed=seed))
        generator = torch.Generator().manual_seed(seed)
        weights = [(torch.rand(n, generator=generator, dtype=torch.float64) + 0.02) ** 4 for _ in range(k)]
        weights = [weight / weight.sum() for weight in weights]
        solution = m3g.solve(problem, epsilon=epsilon, weights=weights, solver="factored", tol=1e-6)
        assert solution.converged
        exact = m3g.solve(problem, epsilon=epsilon, weights=weights, solver="dense", tol=1e-6)
        torch.testing.assert_close(solution.value, exact.value, atol=1e-5, rtol=0)
