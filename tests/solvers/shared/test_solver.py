"""The interface of solvers, with a solver of a user, and the status of a solve."""

from dataclasses import dataclass, replace

import pytest
import torch

import m3g
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.solve import SOLVERS


@dataclass(frozen=True)
class Cautious(Solver):
    """Algorithm 1 at twice the epsilon, under another name."""

    name = "cautious"

    def solve(self, problem, *, epsilon, tol, weights):
        solution = m3g.Sinkhorn().solve(problem, epsilon=2 * epsilon, tol=tol, weights=weights)
        return replace(solution, solver=self.name)


def test_a_custom_solver_is_accepted_by_solve_and_the_loss():
    views = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    gap = m3g.matching_gap(views, epsilon=0.1, solver=Cautious(), tol=1e-6)
    expected = m3g.solve(m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1)), epsilon=0.2, tol=1e-6)
    loss = m3g.M3GLoss(0.1, solver=Cautious(), tol=1e-6)
    assert loss(views) == gap
    assert loss.last.solver == "cautious"
    problem = m3g.CircularVariance()(torch.nn.functional.normalize(views, dim=-1))
    torch.testing.assert_close(
        m3g.solve(problem, epsilon=0.1, solver=Cautious(), tol=1e-6).value, expected.value, atol=1e-5, rtol=0
    )
    with pytest.raises(ValueError, match="epsilon must be a positive finite number, got 0"):
        m3g.solve(problem, epsilon=0, solver=Cautious())


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_declares_its_name_and_is_immutable(name):
    solver = SOLVERS[name]()
    assert solver.name == name
    with pytest.raises(AttributeError):
        solver.max_steps = 3


def test_a_seed_is_fixed_only_where_draws_are_random():
    factored, sampled, seeded = m3g.Factored(), m3g.Sampled(), m3g.Sampled(seed=5)
    assert factored.with_seed(lambda generator: 7) is factored
    assert sampled.with_seed(lambda generator: 7).seed == 7
    assert seeded.with_seed(lambda generator: 7).seed == 5


@pytest.mark.filterwarnings("ignore::m3g.solvers.SamplingWarning")
def test_every_status_is_reached():
    problem = m3g.CircularVariance()(torch.nn.functional.normalize(torch.randn(3, 16, 8), dim=-1))
    few_samples = m3g.Sampled(fixed_steps=8, rank=256, seed=0)
    statuses = {
        Result.CONVERGED: m3g.solve(problem, epsilon=0.5),
        Result.ESTIMATED: m3g.solve(problem, epsilon=0.5, solver=m3g.Sampled(seed=0, form="tuples")),
        Result.OUT_OF_STEPS: m3g.solve(problem, epsilon=0.01, tol=1e-9, solver=m3g.Factored(max_steps=1)),
        Result.UNTRUSTED: m3g.solve(problem, epsilon=0.003, tol=10.0, solver=few_samples),
    }
    assert {status: solution.result for status, solution in statuses.items()} == {status: status for status in statuses}
    assert [solution.converged for solution in statuses.values()] == [True, True, False, False]
