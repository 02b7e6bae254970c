"""Solves in the log domain, at an epsilon beyond the range of float64."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.factored.streamed import RangeWarning


@pytest.mark.parametrize(("k", "n"), [(2, 12), (3, 8), (4, 5)])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-4])
def test_an_epsilon_beyond_the_range_of_float64_is_solved_in_the_log_domain(k, n, epsilon):
    problem = m3g.CircularVariance(scale="algorithm2")(reference.noisy_views(k, n, 4, noise=2.0))
    with pytest.warns(RangeWarning, match="works in the log domain"):
        solution = m3g.solve(problem, epsilon=epsilon)
    assert solution.result is m3g.Result.CONVERGED
    exact = float(m3g.solve(problem, epsilon=0, solver="linear-program").value)
    # The entropy term is between -eps (k log n + 1) and 0.
    assert exact - epsilon * (k * torch.tensor(float(n)).log() + 1) - 1e-6 <= float(solution.value) <= exact + 1e-6
