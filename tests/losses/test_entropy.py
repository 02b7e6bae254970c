"""The temperature of the matching gap: one unit for every k and every cost that has a slope."""

from __future__ import annotations

import pytest
import torch

import m3g
from m3g.costs import NAMED, as_cost
from m3g.losses.entropy import DEFAULT_EPSILON, DEFAULT_TEMPERATURE

SLOPED = [name for name in NAMED if as_cost(name).slope(3) is not None]


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(
        torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double(), dim=-1
    )


@pytest.mark.parametrize("k", [2, 3, 4, 6])
@pytest.mark.parametrize("name", ["cv", "cv-algorithm2", "cosine", "sqeuclidean"])
def test_replacing_a_view_changes_the_exponent_by_the_cosine_over_the_temperature(name, k):
    cost = as_cost(name)
    common, one, other = unit(3, 8)
    epsilon = 0.1 * cost.slope(k)

    def exponent(last):
        points = torch.stack([common] * (k - 1) + [last]).unsqueeze(1)
        return -float(cost(points).dense()) / epsilon

    expected = float((one - other) @ common) / 0.1
    assert exponent(one) - exponent(other) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_query_of_the_product_has_length_one(k):
    d = 16
    others = unit(k - 1, 4000, d)
    query = d ** (k / 2 - 1) * others.prod(0)
    assert float(query.square().sum(-1).mean()) == pytest.approx(1.0, rel=0.05)
    point = unit(1, d, seed=1)
    views = [*others[:, :3], point]
    change = -as_cost("product")(views).dense()[0][(*[torch.arange(3)] * (k - 1), 0)]
    torch.testing.assert_close(change, query[:3] @ point[0])
    assert as_cost("product").slope(k) == 1.0


@pytest.mark.parametrize("k", [2, 3, 5])
def test_csd_has_the_slope_of_cv_near_an_aligned_tuple(k):
    common = unit(1, 8)
    aside = torch.nn.functional.normalize(common + 1e-5 * unit(1, 8, seed=1), dim=-1)
    near = torch.stack([common] * (k - 1) + [aside])
    cv, csd = (float(as_cost(name)(near).dense()) for name in ("cv", "csd"))
    assert csd == pytest.approx(cv, rel=1e-4)
    assert as_cost("csd").slope(k) == as_cost("cv").slope(k)


@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_the_published_epsilon_converts_to_a_temperature(k):
    definition, algorithm = (0.2 / as_cost(name).slope(k) for name in ("cv", "cv-algorithm2"))
    assert 0.4 <= definition <= 0.72 + 1e-9
    assert definition == pytest.approx(0.2 * k**2 / (2 * (k - 1)))
    assert algorithm == pytest.approx(0.2 * (k - 1) / 8)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("name", SLOPED)
def test_a_temperature_is_converted_to_an_epsilon(name, k):
    views = unit(k, 6, 5)
    epsilon = 0.2 * as_cost(name).slope(k)
    assert torch.equal(
        m3g.matching_gap(views, temperature=0.2, cost=name), m3g.matching_gap(views, epsilon=epsilon, cost=name)
    )
    loss = m3g.losses.build("m3g", temperature=0.2, cost=name)
    assert torch.equal(loss(views), m3g.matching_gap(views, epsilon=epsilon, cost=name))
    assert loss.last.epsilon == epsilon
    assert loss.temperature == 0.2
    assert loss.epsilon is None


def test_pairs_and_the_divergence_accept_a_temperature():
    views = unit(3, 6, 5)
    pairs = [m3g.losses.build("m3g-pairs", **options)(views) for options in ({"temperature": 0.3}, {"epsilon": 0.15})]
    assert torch.equal(*pairs)
    slope = m3g.CircularVariance().slope(3)
    divergence = [
        m3g.losses.build("kl", **options)(views) for options in ({"temperature": 0.3}, {"epsilon": 0.3 * slope})
    ]
    assert torch.equal(*divergence)
    assert torch.equal(m3g.losses.matching_divergence(views, temperature=0.3), divergence[0])


def test_the_default_is_a_temperature():
    for k in (2, 3, 5):
        views = unit(k, 6, 5)
        assert torch.equal(m3g.M3GLoss()(views), m3g.matching_gap(views, temperature=DEFAULT_TEMPERATURE))


def test_a_cost_without_a_temperature_has_a_default_epsilon():
    views = unit(3, 4, 5)
    loss = m3g.M3GLoss(cost="coulomb")
    loss(views)
    assert loss.last.epsilon == DEFAULT_EPSILON
    pairs = m3g.losses.M3GPairs(cost="coulomb")
    pairs(views)
    assert pairs.gap.last.epsilon == DEFAULT_EPSILON
    with pytest.raises(ValueError, match="temperature must be None for the cost PairwiseCost"):
        m3g.matching_gap(views, temperature=0.1, cost="coulomb")
    with pytest.raises(ValueError, match="use epsilon"):
        m3g.matching_gap(views, temperature=0.1, cost=lambda *z: sum(z).square().sum(-1))
    with pytest.raises(ValueError, match=r"final_temperature must be None for the cost .* use final_epsilon"):
        m3g.M3GLoss(final_temperature=0.2, cost="coulomb")(views)


@pytest.mark.parametrize("name", ["m3g", "kl", "m3g-pairs"])
def test_epsilon_and_temperature_together_are_an_error(name):
    with pytest.raises(ValueError, match=r"temperature must be None if epsilon is given, got 0\.1 and 0\.05"):
        m3g.losses.build(name, temperature=0.1, epsilon=0.05)
    with pytest.raises(ValueError, match="final_epsilon must be None if temperature or final_temperature is given"):
        m3g.losses.build(name, temperature=0.1, final_epsilon=0.05)
    with pytest.raises(ValueError, match="final_temperature must be None if epsilon or final_epsilon is given"):
        m3g.losses.build(name, epsilon=0.1, final_temperature=0.05)


@pytest.mark.parametrize("wrong", [0, -0.1, float("nan"), "0.1"])
def test_an_invalid_temperature_is_named(wrong):
    with pytest.raises(ValueError, match="temperature must be a positive"):
        m3g.M3GLoss(temperature=wrong)


def test_a_scheduled_temperature_is_geometric():
    loss = m3g.M3GLoss(temperature=0.05, final_temperature=0.2)
    assert loss.scheduled
    for progress, expected in ((0.0, 0.05), (0.5, 0.1), (1.0, 0.2), (7.0, 0.2)):
        loss.set_progress(progress)
        assert loss.temperature == pytest.approx(expected)
    views = unit(3, 6, 5)
    loss(views)
    assert loss.report(loss(views))["epsilon"] == pytest.approx(0.2 * 4 / 9)


def test_a_graph_of_pairs_has_the_mean_slope_of_its_views():
    chain = m3g.PairwiseCost("cosine", weights={(0, 1): 1.0, (1, 2): 0.5})
    assert chain.slope(3) == pytest.approx((1.0 + 1.5 + 0.5) / 3)
    assert m3g.PairwiseCost({(0, 1): "cosine", (1, 2): "coulomb"}).slope(3) is None
