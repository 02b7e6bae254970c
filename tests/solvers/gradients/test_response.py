"""The change of the optimal coupling with the cost, by pairs and by the full tensor, against finite differences."""

import pytest
import torch

import m3g
import reference
from m3g.solvers.gradients.response import PairResponse, TensorResponse, response_of, solve_singular


def potentials_at(problem, epsilon):
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-12)
    return torch.cat([part.reshape(1, -1) for part in solution.potentials], 1)


@pytest.mark.parametrize("weights", [None, {(0, 1): 1.0, (1, 2): 0.5}], ids=["complete", "chain"])
def test_both_forms_give_the_derivative_of_the_coupling(weights):
    cost, epsilon = m3g.PairwiseCost("sqeuclidean", weights=weights), 1.0
    problem = cost(reference.noisy_views(3, 4, 3))
    generator = torch.Generator().manual_seed(0)
    terms = {edge: torch.randn(1, 4, 4, generator=generator, dtype=torch.float64) for edge in problem.edges}
    potentials = potentials_at(problem, epsilon)
    by_pairs = response_of(problem, epsilon, potentials, list(terms))
    assert isinstance(by_pairs, PairResponse)
    full = TensorResponse(problem, epsilon, potentials)

    def coupling(step):
        matrices = (
            problem.by_edge(problem.tensors)
            if not problem.stacked
            else dict(zip(problem.edges, problem.matrices(problem.tensors)))
        )
        tensors = [matrices[edge] + step * terms[edge] for edge in problem.edges]
        changed = problem.with_tensors([torch.stack(tensors, 1)] if problem.stacked else tensors)
        return m3g.solve(changed, epsilon=epsilon, tol=1e-12).coupling()

    expected = (coupling(1e-4) - coupling(-1e-4)) / 2e-4
    change = full.change(terms)
    torch.testing.assert_close(change.tensor[0], expected, atol=1e-6, rtol=0)
    for l, m in problem.edges:
        torch.testing.assert_close(by_pairs.change(terms).pair(l, m), change.pair(l, m), atol=1e-10, rtol=0)
    for l in range(3):
        assert float(change.marginal(l).abs().max()) < 1e-10  # the marginals do not change


def test_a_term_of_three_views_requires_the_full_tensor():
    problem = m3g.CircularVariance()(reference.noisy_views(3, 3, 3))
    assert isinstance(response_of(problem, 0.5, potentials_at(problem, 0.5), [(0, 1, 2)]), TensorResponse)


def test_a_singular_system_is_an_error():
    pairs, marginals = {(0, 1): torch.full((1, 2, 2), torch.nan)}, torch.ones(1, 4)
    with pytest.raises(FloatingPointError, match="use a larger epsilon, or a smaller tol"):
        solve_singular(pairs, marginals, torch.zeros(1, 4), [2, 2])
