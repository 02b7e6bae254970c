"""Scaling sweeps of the dense solver: they converge to Algorithm 1, and end where Newton steps are faster."""

import pytest
import torch

import reference
from m3g.costs import as_cost
from m3g.solvers.dense import sweeps
from m3g.solvers.dense.kernel import Kernel


def kernel_of(sizes, epsilon, *, kept=True):
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in sizes]
    problem = as_cost("csd")([torch.nn.functional.normalize(view, dim=-1) for view in views])
    kernel = Kernel(problem, epsilon, torch.float64, kept=kept)
    kernel.absorb(torch.zeros(1, sum(sizes), dtype=torch.float64))
    target = torch.cat([torch.full((1, n), 1 / n, dtype=torch.float64) for n in sizes], 1)
    return kernel, target, problem.dense()[0]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("sizes", [(4, 5), (4, 3, 5), (3, 2, 4, 3), (2, 3, 2, 2, 3)], ids=str)
def test_sweeps_converge_to_algorithm_1(sizes, kept):
    kernel, target, cost = kernel_of(sizes, 1.0, kept=kept)
    swept = sweeps.sweep(kernel, target, tol=1e-10, max_steps=200, worth=200)
    assert swept.worst <= 1e-10
    coupling, _, _ = reference.algorithm_1(cost, 1.0, 1e-12)
    exponent = -cost
    for l, part in enumerate(swept.log_scaling[0].split(list(sizes))):
        exponent = exponent + part.reshape([-1 if a == l else 1 for a in range(len(sizes))])
    torch.testing.assert_close(exponent.exp(), coupling, atol=1e-9, rtol=0)


def test_the_reported_error_is_that_of_the_scalings():
    kernel, target, _ = kernel_of((4, 3, 5), 0.2)
    swept = sweeps.sweep(kernel, target, tol=1e-12, max_steps=2)
    assert swept.num_steps == 2
    pairs, _ = kernel.pairs(swept.scalings)
    marginals = torch.cat([pairs[0, 1].sum(2), pairs[0, 1].sum(1), pairs[0, 2].sum(1)], 1)
    torch.testing.assert_close((marginals - target).abs().sum(1), swept.error, atol=1e-12, rtol=1e-6)


def test_sweeps_end_if_many_more_would_be_required():
    kernel, target, _ = kernel_of((6, 6, 6), 0.02)
    swept = sweeps.sweep(kernel, target, tol=1e-9, max_steps=500)
    assert swept.worst > 1e-9
    assert swept.num_steps < 50


def test_extrapolation_reduces_the_number_of_sweeps(monkeypatch):
    def number():
        kernel, target, _ = kernel_of((6, 6, 6), 0.1)
        swept = sweeps.sweep(kernel, target, tol=1e-8, max_steps=500, worth=500)
        assert swept.worst <= 1e-8
        return swept.num_steps

    extrapolated = number()
    monkeypatch.setattr(sweeps, "_many_left", lambda *_: False)
    assert extrapolated < number()
