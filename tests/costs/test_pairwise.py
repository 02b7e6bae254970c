"""Sums over pairs of views: graphs, neutral values, ground costs of single pairs, and invalid arguments."""

import pytest
import torch

import m3g
import reference
from m3g.costs import as_cost


def test_weights_define_the_graph():
    views = reference.noisy_views(3, 3, 4)
    cost = m3g.PairwiseCost("sqeuclidean", weights={(0, 1): 2.0, (1, 2): 0.5, (0, 2): 0.0})
    expected = reference.cost_tensor(lambda x, y, z: 2 * (x - y).square().sum() + 0.5 * (y - z).square().sum(), views)
    torch.testing.assert_close(cost(views).dense()[0], expected)


@pytest.mark.parametrize(
    ("cost", "neutral"),
    [
        (m3g.PairwiseCost("sqeuclidean", neutral=2.0), 2.0),
        (m3g.PairwiseCost("coulomb"), 0.5**0.5),
        (m3g.PairwiseCost(lambda x, y: x @ y.mT), 0.0),
    ],
)
def test_a_missing_point_of_a_pairwise_cost_has_its_neutral_value(cost, neutral):
    views = reference.noisy_views(2, 3, 4)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    dense = cost(views, mask=mask).dense()[0]
    torch.testing.assert_close(dense[1], torch.full((3,), neutral, dtype=torch.float64))


def test_a_linear_pairwise_cost_uses_the_imputed_point():
    views = reference.noisy_views(2, 3, 4)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    for cost in (m3g.PairwiseCost("sqeuclidean"), m3g.PairwiseCost("cosine")):
        torch.testing.assert_close(cost(views, mask=mask).dense(), cost(views).dense())


def test_every_pair_may_have_its_own_ground_cost():
    views = reference.noisy_views(4, 3, 5)

    def taxicab(x, y):
        return (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1)

    cost = m3g.PairwiseCost(
        {(0, 1): taxicab, (2, 3): "coulomb", (0, 3): "cosine", (1, 2): "sqeuclidean"},
        weights={(0, 1): 2.0, (1, 2): 0.5, (2, 3): 1.0, (0, 3): 0.0},
    )

    def literal(w, x, y, z):
        return 2 * (w - x).abs().sum() + 0.5 * (x - y).square().sum() + 1 / (y - z).norm().clamp(min=1e-3)

    problem = cost(views)
    assert problem.edges == [(0, 1), (1, 2), (2, 3)]
    torch.testing.assert_close(problem.dense()[0], reference.cost_tensor(literal, views))
    assert m3g.PairwiseCost({(0, 2): "cosine"})(views).edges == [(0, 2)]
    gap = m3g.matching_gap(views, cost=cost, epsilon=2.0, tol=1e-9)
    torch.testing.assert_close(gap, reference.gap(problem.dense()[0], 2.0), atol=1e-7, rtol=0)


def test_the_error_of_a_failing_function_names_the_pair_and_the_shapes():
    views = [torch.rand(2, 3, 4), torch.rand(2, 5, 4), torch.rand(2, 6, 4)]
    grounds = {(0, 1): "cosine", (1, 2): lambda x, y: (x - y).norm(dim=-1)}
    with pytest.raises(
        ValueError,
        match=r"ground must be a function that returns costs \(2, 5, 6\) for points \(2, 5, 4\) of view 1 and "
        r"\(2, 6, 4\) of view 2, got RuntimeError: The size of tensor",
    ):
        m3g.PairwiseCost(grounds)(views)
    with pytest.raises(ValueError, match=r"from \(2, 3, 1, 1, 4\), \(2, 1, 5, 1, 4\), \(2, 1, 1, 6, 4\) to .*, got "):
        as_cost(lambda x, y, z: x @ y)(views).dense()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: m3g.PairwiseCost({(1, 0): "cosine"}), r"ground must have keys \(l, m\) with 0 <= l < m, got \(1, 0\)"),
        (lambda: m3g.PairwiseCost({(0, 1): "x"}), r"ground of \(0, 1\) must be one of 'cosine', 'coulomb'"),
        (lambda: m3g.PairwiseCost({(0, 5): "cosine"})(torch.rand(3, 2, 2)), "ground must name views from 0 to 2"),
        (lambda: m3g.PairwiseCost({})(torch.rand(3, 2, 2)), "ground must have at least one pair"),
        (
            lambda: m3g.PairwiseCost({(0, 1): "cosine"}, weights={(0, 2): 1.0}),
            r"weights must have no keys other than those of ground, got \(0, 2\)",
        ),
        (lambda: m3g.CircularVariance(scale="x"), "scale must be one of 'algorithm2', 'definition', got 'x'"),
        (lambda: m3g.PairwiseCost("x"), "ground must be one of 'cosine', 'coulomb', 'sqeuclidean', got 'x'"),
        (lambda: m3g.PairwiseCost(weights={(1, 0): 1.0}), r"weights must have keys \(l, m\) with 0 <= l < m"),
        (lambda: m3g.PairwiseCost(weights={(0, 1): -1.0}), r"weights\[\(0, 1\)\] must be a finite number"),
        (lambda: m3g.PairwiseCost(weights={(0, 5): 1.0})(torch.rand(3, 2, 2)), "weights must name views from 0 to 2"),
        (
            lambda: m3g.PairwiseCost(weights={(0, 1): 0.0})(torch.rand(3, 2, 2)),
            "weights must have at least one pair with positive weight",
        ),
        (lambda: m3g.PairwiseCost(lambda x, y: x)(torch.rand(3, 2, 4)), "ground must be a function that returns costs"),
        (lambda: as_cost(lambda x, y: x)(torch.rand(2, 3, 4)).dense(), "cost must be a function of 2 broadcastable"),
        (lambda: as_cost("x")(torch.rand(2, 3, 4)), "cost must be one of 'cosine', 'coulomb'"),
    ],
)
def test_invalid_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
