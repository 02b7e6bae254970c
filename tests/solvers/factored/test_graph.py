"""Costs on graphs of views with missing edges."""

import pytest

import m3g
import reference

GRAPHS = {
    "chain": {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0},
    "star": {(0, 1): 1.0, (0, 2): 2.0, (0, 3): 0.5},
    "cycle": {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (0, 3): 1.0},
    "one view alone": {(0, 1): 1.0, (1, 2): 1.0},
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("ground", ["sqeuclidean", "cosine", "coulomb"])
def test_graphs_may_lack_edges(graph, ground):
    views = reference.noisy_views(4, 4, 6)
    problem = m3g.PairwiseCost(ground, weights=GRAPHS[graph])(views)
    reference.assert_agrees(m3g.solve(problem, epsilon=0.3, tol=1e-8), problem.dense()[0], 0.3, atol=1e-6)


@pytest.mark.parametrize("graph", [{(0, 1): 1.0, (1, 2): 1.0}, {(0, 1): 1.0, (0, 2): 1.0}], ids=["chain", "star"])
@pytest.mark.parametrize("epsilon", [0.05, 0.01])
def test_graphs_with_missing_edges_converge_in_few_steps(graph, epsilon):
    problem = m3g.PairwiseCost("sqeuclidean", weights=graph)(reference.noisy_views(3, 8))
    solution = m3g.solve(problem, epsilon=epsilon, tol=1e-5)
    assert solution.converged
    assert solution.num_steps < 40
