"""Sinkhorn sweeps of the factored solver: agreement with the dense solver, and use only where they are fast."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.factored import solver, sweeps
from m3g.solvers.factored.contraction import CompleteContraction

# Sizes of equal and of different views, with the pivot (the largest view) at every position.
SIZES = [
    (5, 4),
    (6, 6),
    (5, 4, 3),
    (3, 7, 4),
    (4, 3, 5),
    (6, 6, 6),
    (3, 2, 4, 5),
    (5, 5, 5, 5),
    (2, 3, 2, 3, 4),
    (2,) * 7,
]


def problem_of(sizes, seed, *, batch=(), dtype=torch.float64, cost=None):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(*batch, n, 4, generator=generator, dtype=dtype) for n in sizes]
    return (cost or m3g.CircularVariance())([torch.nn.functional.normalize(view, dim=-1) for view in views])


def random_weights(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.05 for n in sizes]
    return [weight / weight.sum() for weight in weights]


def swept(problem, epsilon, **options):
    """Return a solution and the results of its sweeps."""
    results = []

    def counting(*args, **kwargs):
        result = sweeps.sweep(*args, **kwargs)
        results.append(result)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "sweep", counting)
        solution = m3g.solve(problem, epsilon=epsilon, solver="factored", **options)
    return solution, results


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-7), (torch.float32, 1e-4)], ids=["float64", "float32"])
@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
def test_sweeps_agree_with_the_dense_solver(sizes, dtype, tol, weighted):
    problem = problem_of(sizes, seed=sum(sizes), dtype=dtype, batch=(2,))
    weights = random_weights(sizes, seed=1) if weighted else None
    solution, results = swept(problem, 0.5, tol=tol, weights=weights)
    assert solution.converged
    assert results
    double = problem.with_tensors([tensor.double() for tensor in problem.tensors])
    expected = m3g.solve(double, epsilon=0.5, tol=1e-11, solver="sinkhorn", weights=weights)
    torch.testing.assert_close(solution.value.double(), expected.value, atol=10 * tol, rtol=0)
    for l in range(len(sizes)):
        torch.testing.assert_close(solution.marginal(l).double(), expected.marginal(l), atol=2 * tol, rtol=0)
        for m in range(l + 1, len(sizes)):
            pair = solution.pair_marginal(l, m).double()
            torch.testing.assert_close(pair, expected.pair_marginal(l, m), atol=10 * tol, rtol=0)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_reported_error_is_that_of_the_marginals(sizes):
    """The error is measured on the scalings that are returned, and the pairs are those of the same point."""
    problem = problem_of(sizes, seed=3)
    kernels = {edge: cost.exp() for edge, cost in zip(problem.edges, pair_exponents(problem, 0.3))}
    target = torch.cat([torch.full((1, n), 1 / n, dtype=torch.float64) for n in sizes], 1)
    contraction = CompleteContraction(kernels, sizes)
    result = sweeps.sweep(contraction, target, tol=1e-30, reach=0.0, max_steps=1)
    assert result.num_steps == 1
    pairs = result.pairs()
    assert sorted(pairs) == problem.edges
    marginals = torch.cat([pairs[0, 1].sum(2), *(pairs[0, l].sum(1) for l in range(1, len(sizes)))], 1)
    error = (marginals - target).abs().sum(1)
    torch.testing.assert_close(result.error, error, atol=1e-12, rtol=1e-9)
    lead, lead_target = (each.split(list(sizes), 1)[contraction.lead] for each in (marginals, target))
    torch.testing.assert_close(lead, lead_target, atol=1e-12, rtol=0)  # scaled last
    scalings = result.log_scaling().exp().split(list(sizes), 1)
    full = torch.ones(1, *sizes, dtype=torch.float64)
    for axes, factor in [*kernels.items(), *(((l,), scaling) for l, scaling in enumerate(scalings))]:
        full = full * m3g.costs.along(factor, axes, len(sizes))
    for (l, m), pair in pairs.items():
        summed = [axis + 1 for axis in range(len(sizes)) if axis not in (l, m)]
        torch.testing.assert_close(pair, full.sum(summed) if summed else full, atol=1e-12, rtol=1e-9)


def pair_exponents(problem, epsilon):
    return list(problem.by_edge(problem.log_kernels(epsilon, torch.float64).groups).values())


@pytest.mark.parametrize(
    "cost",
    [m3g.CircularVariance(scale="algorithm2"), m3g.PairwiseCost("sqeuclidean"), m3g.PairwiseCost("cosine")],
    ids=["algorithm2", "sqeuclidean", "cosine"],
)
@pytest.mark.parametrize("sizes", [(6, 5), (4, 5, 6), (3, 4, 3, 4)], ids=str)
@pytest.mark.parametrize("epsilon", [1.0, 0.2, 0.05])
def test_newton_steps_follow_if_sweeps_are_slow(cost, sizes, epsilon):
    problem = problem_of(sizes, seed=5, cost=cost)
    solution, results = swept(problem, epsilon, tol=1e-6)
    assert solution.converged
    assert all(result.num_steps <= sweeps.SWEEPS + 6 for result in results)
    expected = m3g.solve(problem, epsilon=epsilon, tol=1e-9, solver="sinkhorn")
    if expected.converged:
        torch.testing.assert_close(solution.value, expected.value, atol=1e-5, rtol=0)


def test_gradients_after_sweeps_are_those_after_newton_steps():
    def gradient(max_reach):
        leaf = reference.noisy_views(4, 6, noise=1.0).requires_grad_()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(solver, "SWEPT_REACH", max_reach)
            loss = m3g.M3GLoss(epsilon=0.3, tol=1e-9)
            return torch.autograd.grad(loss(leaf), leaf)[0]

    torch.testing.assert_close(gradient(100.0), gradient(0.0), atol=1e-7, rtol=0)


def test_problems_of_a_batch_that_require_different_numbers_of_sweeps_are_solved():
    flat, sharp = reference.noisy_views(3, 8, noise=5.0), reference.noisy_views(3, 8, noise=0.3)
    problem = m3g.CircularVariance()(torch.stack([flat, sharp]))
    solution = m3g.solve(problem, epsilon=0.05, tol=1e-6)
    assert solution.converged
    for i, views in enumerate((flat, sharp)):
        alone = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, tol=1e-9)
        torch.testing.assert_close(solution.value[i], alone.value, atol=1e-6, rtol=0)
