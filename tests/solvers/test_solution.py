"""Every accessor of a solution is accurate to its `error` for all scales, dtypes and masses."""

import gc
import warnings
import weakref

import pytest
import torch

import m3g
import reference
from m3g.costs import DenseProblem, as_cost


def _points(sizes, scale, dtype=torch.float32, d=2):
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(n, d, generator=generator) * scale).to(dtype) for n in sizes]


def errors(solution, problem, weights):
    """Return the distance of the marginals from the weights for each accessor of a solution."""
    k = problem.k

    def distance(tensor, kept):
        return float((tensor.double() - weights[kept]).abs().sum())

    def total_distance(tensor):
        return sum(distance(tensor.sum([m for m in range(k) if m != l]), l) for l in range(k))

    exponent = -problem.with_tensors([tensor.double() for tensor in problem.tensors]).dense()[0]
    for l, potential in enumerate(solution.potentials):
        exponent = exponent + potential.double().reshape([-1 if m == l else 1 for m in range(k)])
    pairs = [distance(solution.pair_marginal(l, m).sum(1), l) for l in range(k) for m in range(k) if l != m]
    return {
        "coupling": total_distance(solution.coupling().double()),
        "marginal": sum(distance(solution.marginal(l), l) for l in range(k)),
        "pair_marginal": max(pairs),
        "potentials": total_distance((exponent / solution.epsilon).exp()),
    }


def check(problem, epsilon, *, tol=1e-3, solver="auto", weights=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", m3g.solvers.RangeWarning)
        solution = m3g.solve(problem, epsilon=epsilon, tol=tol, solver=solver, weights=weights)
    assert solution.converged
    target = [torch.full((n,), 1 / n, dtype=torch.float64) for n in problem.sizes] if weights is None else weights
    mass = float(target[0].sum())
    assert float(solution.error) <= tol * mass * (1 + 1e-6)
    for name, error in errors(solution, problem, target).items():
        assert error <= 1.1 * float(solution.error) + 1e-4 * mass, name
    return solution


@pytest.mark.parametrize("solver", ["factored", "sampled"])
@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e4, 1e5])
def test_accessors_are_accurate_for_large_points(scale, dtype, sizes, solver):
    if dtype == torch.float16 and scale > 1e3:
        pytest.skip("not in the range of float16")
    chosen = m3g.Factored(max_steps=1000) if solver == "factored" else solver
    check(m3g.CircularVariance()(_points(sizes, scale, dtype)), 0.2, solver=chosen)


@pytest.mark.parametrize("solver", ["factored", "sinkhorn", "sampled"])
def test_accessors_are_accurate_at_a_small_epsilon_on_the_sphere(solver):
    views = [torch.nn.functional.normalize(view, dim=-1) for view in _points((5, 5, 5), 1.0, d=3)]
    check(m3g.CircularVariance()(views), 1e-3 if solver == "sinkhorn" else 1e-6, solver=solver)


@pytest.mark.parametrize("solver", ["factored", "sampled"])
@pytest.mark.parametrize("cost", ["sqeuclidean", m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 0.5})])
def test_accessors_are_accurate_for_raw_pixel_values(cost, solver):
    generator = torch.Generator().manual_seed(1)
    views = [torch.rand(n, 20, generator=generator) * 255 for n in (5, 6, 5)]
    check(as_cost(cost)(views), 10.0, solver=solver)


@pytest.mark.parametrize("solver", ["factored", "sinkhorn", "sampled"])
def test_accessors_are_accurate_for_points_far_from_the_origin(solver):
    views = [view + 1000 for view in _points((5, 6, 5), 1.0, d=20)]
    check(m3g.CircularVariance()(views), 10.0, solver=solver)


def test_gradients_of_a_solve_in_float64_have_the_type_of_the_problem():
    for solver in ("sinkhorn", "sampled"):
        views = torch.stack([view + 30 for view in _points((6, 6, 6), 1.0, d=4)]).requires_grad_()
        gap = m3g.matching_gap(views, epsilon=0.5, solver=solver, normalize=False, tol=1e-6)
        (gradient,) = torch.autograd.grad(gap, views)
        wide = m3g.matching_gap(views.double(), epsilon=0.5, solver="sinkhorn", tol=1e-6, normalize=False)
        (exact,) = torch.autograd.grad(wide, views)
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max()))


def _weights(sizes, mass):
    generator = torch.Generator().manual_seed(2)
    parts = [torch.rand(n, generator=generator, dtype=torch.float64) + 0.2 for n in sizes]
    return [part * (mass / part.sum()) for part in parts]


@pytest.mark.parametrize("solver", ["factored", "sinkhorn", "sampled", "linear-program"])
@pytest.mark.parametrize("mass", [1e-12, 1e-4, 3.0, 1e4, 1e12])
def test_a_solution_scales_with_the_mass(mass, solver):
    sizes = (6, 5, 4)
    problem = m3g.CircularVariance()(_points(sizes, 1.0, torch.float64))
    epsilon = 0.0 if solver == "linear-program" else 0.05
    options = {"epsilon": epsilon, "tol": 1e-3, "solver": m3g.Sampled(seed=0) if solver == "sampled" else solver}
    one = m3g.solve(problem, weights=_weights(sizes, 1.0), **options)
    other = m3g.solve(problem, weights=_weights(sizes, mass), **options)
    assert one.converged
    assert other.converged
    assert abs(other.num_steps - one.num_steps) <= (3 if solver == "sampled" else 0)  # at the rounding error steps vary
    value = float(one.value) + epsilon * torch.tensor(mass, dtype=torch.float64).log()
    torch.testing.assert_close(other.value / mass, value.reshape(()), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.error / mass, one.error, rtol=1e-3, atol=1e-12)
    torch.testing.assert_close(other.coupling() / mass, one.coupling(), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(other.pair_marginal(2, 0) / mass, one.pair_marginal(2, 0), rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(other.marginal(1) / mass, one.marginal(1), rtol=1e-6, atol=1e-12)
    if epsilon > 0:
        check(problem, epsilon, solver=options["solver"], weights=_weights(sizes, mass))
    if other.standard_error is not None:
        torch.testing.assert_close(other.standard_error / mass, one.standard_error, rtol=1e-6, atol=1e-12)


def test_members_of_a_batch_may_differ_in_mass():
    views = torch.stack([torch.stack(_points((5, 5, 5), 1.0 + b, torch.float64)) for b in range(2)])
    masses = torch.tensor([1e-3, 20.0], dtype=torch.float64)
    weights = [masses.unsqueeze(1).expand(2, 5) / 5] * 3
    batch = m3g.solve(m3g.CircularVariance()(views), epsilon=0.1, weights=weights, tol=1e-6)
    assert batch.converged
    for b in range(2):
        alone = m3g.solve(m3g.CircularVariance()(views[b]), epsilon=0.1, weights=[w[b] for w in weights], tol=1e-6)
        torch.testing.assert_close(batch.value[b], alone.value, rtol=1e-6, atol=0.0)
        torch.testing.assert_close(batch.coupling()[b].sum(), masses[b], rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("mass", [1e-3, 50.0])
def test_derivatives_scale_with_the_mass(mass):
    sizes = (4, 3, 3)
    views = [view.requires_grad_() for view in _points(sizes, 1.0, torch.float64)]

    def functions(mass):
        weights = _weights(sizes, mass)
        solution = m3g.solve(
            m3g.CircularVariance()(views), epsilon=0.3, weights=weights, tol=1e-11, differentiable=True
        )
        first = torch.autograd.grad(solution.value, views, create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), views)
        pair = torch.autograd.grad(solution.pair_marginal(0, 1).square().sum(), views)
        return first, second, pair

    for power, scaled, expected in zip((1, 2, 2), functions(mass), functions(1.0)):
        for one, other in zip(scaled, expected):
            torch.testing.assert_close(one / mass**power, other, rtol=1e-6, atol=1e-9)


def test_a_solve_that_stops_early_is_not_converged():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 20))
    for solver in (m3g.Factored(max_steps=1), m3g.Sinkhorn(max_steps=1)):
        solution = m3g.solve(problem, epsilon=0.01, tol=1e-9, solver=solver)
        assert not solution.converged
        assert "NOT converged" in repr(solution)


@pytest.mark.parametrize("differentiable", [False, True])
def test_a_solution_is_freed_without_the_garbage_collector(differentiable):
    views = reference.noisy_views(3, 6).requires_grad_()
    gc.disable()
    try:
        solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.1, differentiable=differentiable)
        pair = solution.pair_marginal(0, 1)
        references = [weakref.ref(solution), weakref.ref(solution.flat_potentials), weakref.ref(pair)]
        del solution, pair
        assert [each() for each in references] == [None] * 3  # without the garbage collector: no reference cycle
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


def test_sinkhorn_is_accurate_for_large_dense_costs():
    generator = torch.Generator().manual_seed(0)
    cost = 1e6 + torch.rand(4, 5, 6, generator=generator)
    check(DenseProblem(cost), 0.2, solver="sinkhorn")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda solution: solution.coupling(limit=10),
            r"the full coupling must be at most .* use pair_marginal\(l, m\)",
        ),
        (lambda solution: solution.marginal(3), "l must be the index of a view, from 0 to 2, got 3"),
        (lambda solution: solution.pair_marginal(1, 1), "m must be a view other than l = 1"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    solution = m3g.solve(m3g.CircularVariance()(torch.rand(3, 4, 5) + 0.1), epsilon=0.1)
    with pytest.raises(ValueError, match=message):
        call(solution)
