"""Costs that depend on the order of the views, given views in another order."""

import pytest
import torch

import m3g
from m3g.costs import FunctionCost, as_cost
from m3g.costs.reordered import reordered


def lopsided(x, y):
    return (x.unsqueeze(-2) - 2 * y.unsqueeze(-3)).square().sum(-1)


COSTS = {
    "symmetric": m3g.CircularVariance(),
    "chain": m3g.PairwiseCost(weights={(0, 1): 1.0, (1, 2): 0.5}),
    "ground of pairs": m3g.PairwiseCost({(0, 1): "cosine", (0, 2): lopsided}),
    "lopsided ground": m3g.PairwiseCost(lopsided),
    "weighted lopsided ground": m3g.PairwiseCost(lopsided, weights={(0, 2): 1.0, (1, 2): 0.5}),
    "function": FunctionCost(lambda x, y, z: (x - 2 * y + 3 * z).square().sum(-1)),
    "sum": m3g.PairwiseCost(weights={(0, 1): 1.0}) + 0.5 * as_cost(lambda x, y, z: (x * z - y).sum(-1))[:2],
}


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 0, 1], [1, 2, 0]])
@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_a_tuple_does_not_change(name, order):
    views = [torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (2, 3, 4)]
    moved = reordered(COSTS[name], order)([views[l] for l in order]).dense()[0]
    torch.testing.assert_close(moved, COSTS[name](views).dense()[0].permute(order))


@pytest.mark.parametrize("name", COSTS)
def test_the_matching_does_not_depend_on_the_anchor(name):
    """The anchor, the largest view, is the last one here."""
    generator = torch.Generator().manual_seed(0)
    views = [torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (4, 4, 5)]
    matched = m3g.match(views, cost=COSTS[name], epsilon=0.3, normalize=False)
    coupling = m3g.solve(COSTS[name](views), epsilon=0.3, tol=1e-4).coupling()
    assert matched.anchor == 2
    assert matched.tuples[:, 0].tolist() == [int(coupling[..., i].argmax()) // 4 for i in range(5)]
    assert matched.tuples[:, 1].tolist() == [int(coupling[..., i].argmax()) % 4 for i in range(5)]


def test_wrong_edges_are_named_as_given():
    views = [torch.randn(n, 4) for n in (4, 4, 5)]
    with pytest.raises(ValueError, match=r"^weights must name views from 0 to 2, got \(0, 3\)\.$"):
        m3g.match(views, cost=m3g.PairwiseCost(weights={(0, 3): 1.0}))
