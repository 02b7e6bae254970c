"""The unregularised solver against exhaustive search, strong duality, and the limit of a small epsilon."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference


@settings(max_examples=10, deadline=None)
@given(shape=st.sampled_from([(2, 4), (2, 5), (3, 2), (3, 3)]), seed=st.integers(0, 100))
def test_the_linear_program_finds_the_best_polymatching(shape, seed):
    k, n = shape
    views = reference.noisy_views(k, n, 3, noise=3.0, seed=seed)
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=0, solver="linear-program")
    best = reference.best_polymatching(problem.dense()[0])
    assert float(solution.value) <= best + 1e-12  # for k >= 3 a fractional coupling may be better
    if k == 2:
        assert float(solution.value) == pytest.approx(best, abs=1e-12)
    # Strong duality, feasibility and complementary slackness.
    total = sum(f.mean() for f in solution.potentials)
    torch.testing.assert_close(total, solution.value)
    slack = problem.dense()[0]
    for l, f in enumerate(solution.potentials):
        slack = slack - f.reshape([-1 if a == l else 1 for a in range(k)])
    assert slack.min() > -1e-9
    assert float((solution.coupling() * slack).sum()) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("k", "n"), [(2, 12), (3, 8), (4, 4)])
def test_solutions_at_a_small_epsilon_approach_the_linear_program(k, n):
    views = reference.noisy_views(k, n, 4, noise=2.0)
    problem = m3g.CircularVariance()(views)
    exact = m3g.solve(problem, epsilon=0, solver="linear-program")
    errors = []
    for epsilon in (0.02, 0.01, 0.005):
        solution = m3g.solve(problem, epsilon=epsilon, tol=1e-7)
        expected_cost = (solution.coupling() * problem.dense()[0]).sum()
        errors.append(float(expected_cost - exact.value))
        # ⟨P, C⟩ exceeds the optimum by at most eps times the largest entropy, k log n.
        assert -1e-9 <= errors[-1] <= epsilon * k * np.log(n)
    assert errors == sorted(errors, reverse=True)


PROBLEM = m3g.CircularVariance()(torch.rand(3, 4, 5) + 0.1)
BATCH = m3g.CircularVariance()(torch.rand(2, 3, 4, 5))


@pytest.mark.parametrize(
    ("problem", "epsilon", "solver", "message"),
    [
        (PROBLEM, 0.1, "linear-program", "epsilon must be 0 with solver='linear-program', got 0.1"),
        (BATCH, 0, "linear-program", "problem must not be a batch with solver='linear-program', got 2 problems"),
        (PROBLEM, 0, m3g.LinearProgram(max_tuples=10), "problem must have at most 10 tuples"),
        (torch.full((3, 3), torch.nan), 0, "linear-program", "problem must be finite numbers, got NaN or inf"),
        (torch.full((3, 3), torch.inf), 0, "linear-program", "problem must be finite numbers, got NaN or inf"),
        (torch.full((2, 3, 2), torch.nan), 0, "linear-program", "problem must be finite numbers, got NaN or inf"),
    ],
)
def test_unsupported_problems_raise(problem, epsilon, solver, message):
    with pytest.raises(ValueError, match=message):
        m3g.solve(problem, epsilon=epsilon, solver=solver)
