"""The dual: its gradient is the difference between weights and marginals, and its steps lead to the maximum."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.factored.graph import GraphContraction
from m3g.solvers.factored.kernels import pair_kernels
from m3g.solvers.factored.streamed import StreamedContraction
from m3g.solvers.shared.dual import MarginalDual

SIZES = (4, 3, 5)
CHAIN = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 1.0, (1, 2): 1.0})


def dual_of(form, *, newton=True):
    generator = torch.Generator().manual_seed(0)
    problem = CHAIN([torch.randn(1, n, 2, generator=generator, dtype=torch.float64) for n in SIZES])
    logs = form is StreamedContraction
    kernels = pair_kernels(problem, None, epsilon=1.0, tol=1e-9, read_values=True, logs=logs)
    contraction = form(kernels.matrices, SIZES) if logs else form(kernels.matrices, SIZES, all_pairs=True)
    return MarginalDual.of(contraction, kernels.target, kernels.dtype, newton=newton, fixed=False), problem


FORMS = pytest.mark.parametrize("form", [GraphContraction, StreamedContraction])


@FORMS
def test_the_gradient_of_the_dual_is_the_residual_of_the_marginals(form):
    dual, _ = dual_of(form)
    start = torch.randn(1, sum(SIZES), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    point = dual.evaluate(start)
    residual = dual.target - dual.marginals(point)
    assert float(residual[:, : SIZES[0]].abs().max()) < 1e-12  # the leading view has its weights
    torch.testing.assert_close(point.error, residual.abs().sum(1))
    move = torch.randn(start.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ahead, behind = (dual.evaluate(start + sign * 1e-5 * move).height for sign in (1, -1))
    slope = (residual[:, SIZES[0] :] * move[:, SIZES[0] :]).sum()
    assert float((ahead - behind) / 2e-5) == pytest.approx(float(slope), abs=1e-8)


@FORMS
@pytest.mark.parametrize("newton", [True, False])
def test_repeated_steps_reach_the_solution_of_algorithm_1(form, newton):
    dual, problem = dual_of(form, newton=newton)
    point = dual.evaluate(torch.zeros_like(dual.target))
    for _ in range(10 if newton else 400):
        point = dual.evaluate(point.log_scaling + dual.direction(point))
    coupling, _, _ = reference.algorithm_1(problem.dense()[0], 1.0, 1e-12)
    torch.testing.assert_close(point.pairs[0, 2][0], coupling.sum(1), atol=1e-7, rtol=0)
    torch.testing.assert_close(point.pairs[1, 2][0], coupling.sum(0), atol=1e-7, rtol=0)


def test_a_sweep_of_a_graph_is_that_of_algorithm_1():
    dual, _ = dual_of(GraphContraction, newton=False)
    scalings = [torch.rand(1, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in SIZES]
    targets = dual.target.split(list(SIZES), 1)
    swept = dual.contraction.sweep(scalings, targets)
    full = torch.einsum("zab,zbc,za,zb,zc->zabc", *dual.contraction.kernels.values(), *swept)
    torch.testing.assert_close(full.sum((1, 2)), targets[2])  # the last view was scaled last


@FORMS
def test_a_step_along_which_the_dual_decreases_is_replaced_by_updates_that_increase_it(form):
    dual, _ = dual_of(form)
    point = dual.evaluate(2 * torch.randn(1, sum(SIZES), generator=torch.Generator().manual_seed(1)).double())
    residual = dual.target - dual.marginals(point)
    torch.testing.assert_close(dual.shortened(point, residual), residual / 4)
    replaced = dual.shortened(point, -residual)
    assert float(dual.evaluate(point.log_scaling + replaced).height) > float(point.height)
