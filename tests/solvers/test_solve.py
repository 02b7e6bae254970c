"""`solve` with every solver against the paper's Algorithm 1, POT and OTT-JAX; invalid arguments."""

import json
from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
import reference
from m3g.costs import as_cost

SHAPES = st.tuples(st.integers(2, 5), st.integers(1, 4), st.integers(3, 8), st.integers(0, 1000))


EPSILONS = st.sampled_from([1.0, 0.5, 0.3])  # the literal algorithm needs thousands of sweeps below


@pytest.mark.parametrize("solver", ["factored", "dense", "sinkhorn", m3g.Factored(newton=False)])
@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, epsilon=EPSILONS)
def test_float64_agrees_with_algorithm_1(solver, shape, epsilon):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-8, solver=solver)
    reference.assert_agrees(solution, problem.dense()[0], epsilon, atol=1e-6)


@pytest.mark.parametrize("solver", ["factored", "dense", "sinkhorn"])
@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, epsilon=EPSILONS)
def test_float32_agrees_with_algorithm_1(solver, shape, epsilon):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed, dtype=torch.float32)
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-5, solver=solver)
    assert solution.value.dtype == torch.float32
    reference.assert_agrees(solution, problem.dense()[0], epsilon, atol=2e-4)


@settings(max_examples=12, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=4), seed=st.integers(0, 1000), weighted=st.booleans())
def test_sizes_and_weights_may_differ_by_view(sizes, seed, weighted):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    views = [view / view.norm(dim=-1, keepdim=True) for view in views]
    weights = None
    if weighted:
        weights = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in sizes]
        weights = [a / a.sum() for a in weights]
    for cost in ("cv", "sqeuclidean"):
        problem = as_cost(cost)(views)
        for solver in ("factored", "dense", "sinkhorn"):
            solution = m3g.solve(problem, epsilon=2.0, tol=1e-8, solver=solver, weights=weights)
            reference.assert_agrees(solution, problem.dense()[0], 2.0, atol=1e-6, weights=weights)


def test_a_batch_gives_the_solutions_of_its_members():
    views = torch.stack([reference.noisy_views(3, 6, seed=s, noise=0.5 + s) for s in range(4)]).view(2, 2, 3, 6, 16)
    solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, tol=1e-9)
    assert solution.value.shape == solution.error.shape == (2, 2)
    assert solution.pair_marginal(0, 1).shape == (2, 2, 6, 6)
    for i in range(2):
        for j in range(2):
            alone = m3g.solve(m3g.CircularVariance()(views[i, j]), epsilon=0.05, tol=1e-9)
            torch.testing.assert_close(solution.value[i, j], alone.value)
            torch.testing.assert_close(solution.coupling()[i, j], alone.coupling(), atol=1e-8, rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.2, 0.05, 0.02, 0.005])
@pytest.mark.parametrize("noise", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("k", "n"), [(2, 64), (3, 48), (4, 20), (6, 6)])
def test_small_epsilon_converges_in_few_steps_in_float32(epsilon, noise, k, n):
    views = reference.noisy_views(k, n, 64, noise=noise, dtype=torch.float32)
    solution = m3g.solve(m3g.CircularVariance()(views), epsilon=epsilon, tol=1e-5)
    assert solution.converged
    assert solution.num_steps <= 25
    double = m3g.solve(m3g.CircularVariance()(views.double()), epsilon=epsilon, tol=1e-8)
    assert double.converged
    torch.testing.assert_close(solution.value.double(), double.value, atol=2e-6, rtol=0)


def test_two_views_agree_with_pot():
    x, y = reference.noisy_views(2, 30, 8)
    cost = (2 - 2 * x @ y.T) / 4
    weights = torch.full((30,), 1 / 30, dtype=torch.float64)
    plan = ot.sinkhorn(weights, weights, cost, 0.05, stopThr=1e-12, numItermax=100_000, method="sinkhorn_log")
    solution = m3g.solve(m3g.CircularVariance()(torch.stack([x, y])), epsilon=0.05, tol=1e-10)
    torch.testing.assert_close(solution.coupling(), plan, atol=1e-9, rtol=1e-6)


GOLDEN = Path(__file__).parent / "ott_reference.json"


@pytest.mark.parametrize("case", json.loads(GOLDEN.read_text()), ids=lambda c: f"n{c['n']}-k{c['k']}-eps{c['eps']}")
def test_values_agree_with_an_independent_implementation(case):
    """Entropic costs of OTT-JAX 0.6.0 (without the "-1" of the paper's entropy), in float64 on float32 views."""
    k, n, epsilon = case["k"], case["n"], case["eps"]
    views = np.random.default_rng(0).standard_normal((k, n, 64))
    views = torch.tensor((views / np.linalg.norm(views, axis=-1, keepdims=True)).astype(np.float32))
    for dtype, tol, accuracy in ((torch.float64, 1e-9, 1e-7), (torch.float32, 1e-5, 1e-5)):
        solution = m3g.solve(m3g.CircularVariance()(views.to(dtype)), epsilon=epsilon, tol=tol)
        assert abs(float(solution.value) + epsilon - case["ent"]) < accuracy


PROBLEM = m3g.CircularVariance()(torch.rand(3, 4, 5) + 0.1)
WEIGHTS = [torch.full((4,), 0.25)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        ({"epsilon": -1.0}, "epsilon must be a positive finite number, got -1.0"),
        ({"epsilon": float("nan")}, "epsilon must be a positive finite number, got nan"),
        ({"epsilon": "a"}, "epsilon must be a positive number, got str 'a'"),
        ({"tol": 0.0}, "tol must be a positive finite number, got 0.0"),
        ({"solver": "x"}, "solver must be one of 'auto', 'dense', 'factored'"),
        ({"weights": WEIGHTS[:2]}, "weights must be a sequence of 3 tensors, one per view, got 2"),
    ],
)
def test_invalid_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        m3g.solve(PROBLEM, **{"epsilon": 0.1, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m3g.solve(3, epsilon=0.1), "problem must be a cost applied to views or a dense tensor, got int"),
        (
            lambda: m3g.solve(torch.rand(4), epsilon=0.1),
            "problem must be a non-empty floating point tensor with k >= 2",
        ),
        (
            lambda: m3g.solve(torch.full((2, 2), torch.nan), epsilon=0.1),
            "problem must be finite numbers, got NaN or inf",
        ),
        (lambda: m3g.Factored(max_steps=0), "max_steps must be a whole number of at least 1, got 0"),
        (lambda: m3g.solve(torch.rand(2, 2), epsilon=1.0, solver="factored"), "a sum over pairs of views"),
    ],
)
def test_unsupported_problems_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
