"""The Newton system of the dual, by factorisation and by conjugate gradients, against a dense pseudo-inverse."""

import itertools

import pytest
import torch

from m3g.costs import block_matrix
from m3g.solvers.shared import newton


def system(sizes, dtype=torch.float64):
    """Return the pair marginals and marginals of a coupling, and a right-hand side with equal sums in all views."""
    generator = torch.Generator().manual_seed(0)
    coupling = torch.rand(2, *sizes, generator=generator, dtype=torch.float64)
    coupling /= coupling.flatten(1).sum(1).view(-1, *[1] * len(sizes))
    k = len(sizes)
    pairs = {
        (l, m): coupling.sum([a + 1 for a in range(k) if a not in (l, m)]) if k > 2 else coupling
        for l, m in itertools.combinations(range(k), 2)
    }
    marginals = torch.cat([coupling.sum([a + 1 for a in range(k) if a != l]) for l in range(k)], 1)
    right = [torch.randn(2, n, generator=generator, dtype=torch.float64) for n in sizes]
    right = torch.cat([part - part.mean(1, keepdim=True) for part in right], 1)
    return {edge: pair.to(dtype) for edge, pair in pairs.items()}, marginals.to(dtype), right.to(dtype)


@pytest.mark.parametrize("direct_size", [0, 400], ids=["iterations", "factorisation"])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("sizes", [(6, 7), (5, 4, 6), (3, 4, 3, 2)], ids=str)
def test_the_solution_satisfies_the_system(sizes, fixed, direct_size, monkeypatch):
    monkeypatch.setattr(newton, "DIRECT_SIZE", direct_size)
    pairs, marginals, right = system(sizes)
    step = newton.solve_newton(pairs, marginals, right, sizes, rtol=1e-9, fixed=fixed)
    matrix = block_matrix(pairs, marginals, sizes)
    torch.testing.assert_close((matrix @ step.unsqueeze(2)).squeeze(2), right, atol=1e-6, rtol=0)


def test_an_indefinite_matrix_is_damped_to_a_mean_of_sinkhorn_updates():
    sizes = (3, 3)
    pairs, marginals, right = system(sizes)
    step = newton.factorise({(0, 1): 1e6 * pairs[0, 1]}, marginals, right, sizes, dtype=torch.float64)
    torch.testing.assert_close(step, right / marginals)


def test_conjugate_gradients_report_whether_they_converged():
    pairs, marginals, right = system((8, 9))
    multiply = newton.hessian(pairs, marginals, (8, 9))
    _, converged = newton.conjugate_gradients(multiply, right, marginals, rtol=1e-10, max_steps=1)
    assert not converged
    step, converged = newton.conjugate_gradients(multiply, right, marginals, rtol=1e-10, max_steps=60)
    assert converged
    torch.testing.assert_close(multiply(step), right, atol=1e-8, rtol=0)


def test_float32_pairs_are_factorised_in_float64():
    sizes = (5, 4, 6)
    pairs, marginals, right = system(sizes, torch.float32)
    step = newton.solve_newton(pairs, marginals, right, sizes, rtol=1e-6)
    assert step.dtype == torch.float64
    matrix = block_matrix(pairs, marginals, sizes).double()
    torch.testing.assert_close((matrix @ step.unsqueeze(2)).squeeze(2), right.double(), atol=1e-4, rtol=0)
