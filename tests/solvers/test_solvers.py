"""The solvers against the paper's Algorithm 1, against each other, and against POT and exhaustive search."""

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
GRAPHS = {
    "chain": {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0},
    "star": {(0, 1): 1.0, (0, 2): 2.0, (0, 3): 0.5},
    "cycle": {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0},
    "one view alone": {(0, 1): 1.0, (1, 2): 1.0},
}


def agree(solution, cost, epsilon, *, rtol, weights=None):
    """The coupling, its value and every marginal are those of Algorithm 1."""
    coupling, value, _ = reference.algorithm_1(cost.double(), epsilon, 1e-9, weights)
    assert solution.converged, solution
    close = {"atol": rtol, "rtol": rtol, "check_dtype": False}
    torch.testing.assert_close(solution.value, value, **close)
    torch.testing.assert_close(solution.coupling(), coupling, **close)
    k = cost.ndim
    for l in range(k):
        torch.testing.assert_close(solution.marginal(l), coupling.sum([a for a in range(k) if a != l]), **close)
        for m in range(k):
            if m != l:
                pair = coupling.sum([a for a in range(k) if a not in (l, m)]) if k > 2 else coupling
                torch.testing.assert_close(solution.pair_marginal(l, m), pair if l < m else pair.T, **close)


@pytest.mark.parametrize("solver", ["factored", "dense", "sinkhorn", m3g.Factored(newton=False)])
@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, epsilon=EPSILONS)
def test_float64_agrees_with_algorithm_1(solver, shape, epsilon):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed)
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-8, solver=solver)
    agree(solution, problem.dense()[0], epsilon, rtol=1e-6)


@pytest.mark.parametrize("solver", ["factored", "dense", "sinkhorn"])
@settings(max_examples=12, deadline=None)
@given(shape=SHAPES, epsilon=EPSILONS)
def test_float32_agrees_with_algorithm_1(solver, shape, epsilon):
    k, n, d, seed = shape
    views = reference.noisy_views(k, n, d, seed=seed, dtype=torch.float32)
    problem = m3g.CircularVariance()(views)
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-5, solver=solver)
    assert solution.value.dtype == torch.float32
    agree(solution, problem.dense()[0], epsilon, rtol=2e-4)


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
            agree(solution, problem.dense()[0], 2.0, rtol=1e-6, weights=weights)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("ground", ["sqeuclidean", "cosine", "coulomb"])
def test_graphs_may_lack_edges(graph, ground):
    views = reference.noisy_views(4, 4, 6)
    problem = m3g.PairwiseCost(ground, weights=GRAPHS[graph])(views)
    agree(m3g.solve(problem, epsilon=0.3, tol=1e-8), problem.dense()[0], 0.3, rtol=1e-6)


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


@pytest.mark.parametrize("slab", [1, 3])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_slabs_change_nothing(slab, kept, batch, monkeypatch):
    from m3g.solvers.factored import contraction

    for k in (3, 4, 5, 6):
        views = torch.stack([reference.noisy_views(k, 4, seed=seed) for seed in range(batch)])
        problem = m3g.CircularVariance()(views)
        whole = m3g.solve(problem, epsilon=0.05, tol=1e-9)
        with monkeypatch.context() as patch:
            patch.setattr(contraction, "SLAB_BYTES", slab * batch * 4 ** (k - 2) * 8)
            patch.setattr(contraction, "STORED_BYTES", 2**20 if kept else 0)
            parts = m3g.solve(problem, epsilon=0.05, tol=1e-9)
        torch.testing.assert_close(parts.coupling(), whole.coupling())
        torch.testing.assert_close(parts.pair_marginal(1, 2), whole.pair_marginal(1, 2))


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


@settings(max_examples=10, deadline=None)
@given(shape=st.sampled_from([(2, 4), (2, 5), (3, 2), (3, 3)]), seed=st.integers(0, 100))
def test_exact_finds_the_best_polymatching(shape, seed):
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
def test_small_epsilon_tends_to_exact(k, n):
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


def test_fixed_steps_read_no_value_but_report_the_error():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 10, dtype=torch.float32))
    solution = m3g.solve(problem, epsilon=0.05, solver=m3g.Factored(fixed_steps=4))
    assert solution.num_steps == 4
    assert float(solution.error) < 1e-4
    assert solution.converged


def test_a_solve_that_stops_early_warns():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 20))
    for solver in (m3g.Factored(max_steps=1), m3g.Sinkhorn(max_steps=1)):
        solution = m3g.solve(problem, epsilon=0.01, tol=1e-9, solver=solver)
        assert not solution.converged
        assert "NOT converged" in repr(solution)


def test_estimate_names_the_solver_and_grows_with_the_problem():
    small = m3g.workload(m3g.CircularVariance()(torch.rand(3, 32, 8)))
    large = m3g.workload(m3g.CircularVariance()(torch.rand(3, 64, 8)))
    assert small.solver == large.solver == "factored"
    assert large.flops == 8 * small.flops
    assert m3g.workload(m3g.CircularStd()(torch.rand(3, 32, 8))).solver == "dense"
    assert m3g.workload(m3g.CircularVariance()(torch.rand(3, 32, 8)), solver="sinkhorn").bytes == 32**3 * 4


PROBLEM = m3g.CircularVariance()(torch.rand(3, 4, 5) + 0.1)
WEIGHTS = [torch.full((4,), 0.25)] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a positive finite number, got 0.0"),
        ({"epsilon": -1.0}, "epsilon must be a positive finite number, got -1.0"),
        ({"epsilon": float("nan")}, "epsilon must be a positive finite number, got nan"),
        ({"epsilon": "a"}, "epsilon must be a positive number, got str 'a'"),
        ({"epsilon": 0.1, "solver": "linear-program"}, "epsilon must be 0 with solver='linear-program', got 0.1"),
        ({"tol": 0.0}, "tol must be a positive finite number, got 0.0"),
        ({"solver": "x"}, "solver must be one of 'auto', 'dense', 'factored'"),
        ({"weights": WEIGHTS[:2]}, "weights must be a sequence of 3 tensors, one per view, got 2"),
        ({"weights": torch.rand(3, 4)}, "weights must be a sequence of 3 tensors, one per view, got a tensor"),
        ({"weights": [*WEIGHTS[:2], torch.full((5,), 0.2)]}, "weights must have 4 entries in view 2"),
        ({"weights": [*WEIGHTS[:2], torch.full((4,), 0.5)]}, "weights must have the same sum in every view"),
        ({"weights": [*WEIGHTS[:2], torch.tensor([-0.5, 0.5, 0.5, 0.5])]}, "finite numbers of at least 0, got -0.5"),
        ({"weights": [torch.full((4,), torch.inf)] * 3}, "finite numbers of at least 0, got inf in view 0"),
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
        (
            lambda: m3g.solve(torch.rand(4, 4, 4), epsilon=1.0, solver=m3g.Sinkhorn(memory_limit=100)),
            "the cost tensor of 4 x 4 x 4 entries must be at most .* GiB, got .* GiB",
        ),
        (
            lambda: m3g.solve(PROBLEM, epsilon=0.1).coupling(limit=10),
            r"the full coupling must be at most .* use pair_marginal\(l, m\)",
        ),
        (lambda: m3g.solve(PROBLEM, epsilon=0.1).marginal(3), "l must be the index of a view, from 0 to 2, got 3"),
        (lambda: m3g.solve(PROBLEM, epsilon=0.1).pair_marginal(1, 1), "m must be a view other than l = 1"),
        (
            lambda: m3g.solve(m3g.CircularVariance()(torch.rand(2, 3, 4, 5)), epsilon=0, solver="linear-program"),
            "problem must not be a batch with solver='linear-program', got 2 problems",
        ),
        (
            lambda: m3g.solve(PROBLEM, epsilon=0, solver=m3g.LinearProgram(max_tuples=10)),
            "problem must have at most 10 tuples",
        ),
        (lambda: m3g.workload(PROBLEM, solver="x"), "solver must be one of 'auto', 'dense', 'factored', 'sampled'"),
    ],
)
def test_unsupported_problems_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_operations_of_two_views_grow_with_their_pairs():
    few, many = (m3g.workload(m3g.CircularVariance()(torch.randn(2, n, 4)), solver="factored") for n in (10, 100))
    assert many.flops == 100 * few.flops
