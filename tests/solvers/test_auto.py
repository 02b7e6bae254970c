"""The automatic choice of a solver, and predictions of operations and memory."""

import warnings

import pytest
import torch

import m3g
import reference
from m3g.costs import as_cost
from m3g.solvers import EstimatedWarning, auto
from solvers.noisy import gap_and_gradient, noisy_views


def test_estimate_names_the_solver_and_grows_with_the_problem():
    small = m3g.workload(m3g.CircularVariance()(torch.rand(3, 32, 8)))
    large = m3g.workload(m3g.CircularVariance()(torch.rand(3, 64, 8)))
    assert small.solver == large.solver == "factored"
    assert large.flops == 8 * small.flops
    assert m3g.workload(m3g.CircularStd()(torch.rand(3, 32, 8))).solver == "dense"
    assert m3g.workload(m3g.CircularVariance()(torch.rand(3, 32, 8)), solver="sinkhorn").bytes == 32**3 * 4


def test_an_unknown_solver_is_named():
    with pytest.raises(ValueError, match="solver must be one of 'auto', 'dense', 'factored', 'sampled'"):
        m3g.workload(m3g.CircularVariance()(torch.rand(3, 4, 5)), solver="x")


def test_the_operations_of_two_views_grow_with_their_pairs():
    few, many = (m3g.workload(m3g.CircularVariance()(torch.randn(2, n, 4)), solver="factored") for n in (10, 100))
    assert many.flops == 100 * few.flops


def test_auto_selects_the_dense_solver_for_every_cost_that_is_not_pairwise():
    views = reference.noisy_views(3, 4, 5)
    for cost in ("csd", "product", "0.5*cv + product", lambda x, y, z: (x * y * z).sum(-1)):
        assert m3g.solve(as_cost(cost)(views), epsilon=0.5).solver == "dense"
    assert m3g.solve(torch.rand(3, 4, 5), epsilon=0.5).solver == "dense"
    assert m3g.solve(as_cost("cv + cosine")(views), epsilon=0.5).solver == "factored"


def test_auto_samples_beyond_the_budget_with_a_warning():
    views = noisy_views(4, 40, 1.0, d=64)
    exact = m3g.matching_gap(views, epsilon=0.1, tol=1e-6)
    loss = m3g.M3GLoss(epsilon=0.1, solver=m3g.Auto(max_flops=1e5, few_tuples=1))
    torch.manual_seed(0)
    with pytest.warns(EstimatedWarning, match="40 x 40 x 40 x 40"):
        gap = loss(views)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            loss(views)
    assert [warning.category for warning in caught] == [EstimatedWarning]
    assert loss.last.solver == "sampled"
    assert abs(float(gap - exact)) < 4 * float(loss.last.standard_error)
    assert float(loss.last.relative_gradient_error) < 0.1


def test_workload_predicts_the_choice_of_auto(monkeypatch):
    cost = m3g.CircularVariance()
    small, large = cost(torch.rand(3, 32, 8)), cost(torch.rand(8, 64, 8))
    assert m3g.workload(small).solver == m3g.Auto().decide(small).name == "factored"
    assert m3g.workload(large).solver == m3g.Auto().decide(large).name == "sampled"
    assert m3g.workload(large) == m3g.workload(large, solver="sampled")
    assert m3g.workload(large).flops < 1e-3 * m3g.workload(large, solver="factored").flops
    # Linear in the number of points and in the number of problems.
    assert m3g.workload(cost(torch.rand(2, 8, 128, 8)), solver="sampled").bytes == 4 * m3g.workload(large).bytes
    with pytest.raises(
        ValueError,
        match="cost must be a named cost, a PairwiseCost or a sum of these with solver='sampled', got FunctionProblem",
    ):
        m3g.workload(m3g.costs.as_cost(lambda x, y: (x * y).sum(-1))(torch.rand(2, 3, 4)), solver="sampled")


@pytest.mark.parametrize("cost", ["csd", "product", "0.5*cv + 0.5*product"])
def test_auto_samples_past_the_budget_of_the_dense_solver(monkeypatch, cost):
    views = noisy_views(4, 12)
    exact, _, _ = gap_and_gradient(views, 0.2, m3g.Dense(), 1e-5, cost=as_cost(cost))
    problem = as_cost(cost)(views)
    assert m3g.workload(problem).solver == "dense"
    solver = m3g.Auto(few_tuples=1)
    assert solver.decide(problem).name == "dense"
    monkeypatch.setattr(auto, "memory_limit", lambda device: 12**4)
    assert solver.decide(problem).name == "sampled"
    loss = m3g.M3GLoss(epsilon=0.2, cost=cost, solver=solver)
    torch.manual_seed(0)
    with pytest.warns(EstimatedWarning, match="12 x 12 x 12 x 12"):
        gap = loss(views)
    assert loss.last.solver == "sampled"
    assert abs(float(gap - exact)) < 3 * float(loss.last.standard_error)
