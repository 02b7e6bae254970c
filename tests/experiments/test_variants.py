"""The variants of M3G: the experiment in miniature, and each of them against a literal version."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

import m3g
from experiments.miniature import small_runs
from m3g.experiments.engine.spec import Request
from m3g.experiments.variants import runs as variants
from m3g.experiments.variants.comparisons import SoftTargets, soft_target
from m3g.experiments.variants.epsilon import VaryingEpsilon
from m3g.experiments.views import runs as views
from m3g.experiments.views import sets as view_sets


def points(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_end_to_end(monkeypatch, tmp_path):
    monkeypatch.setattr(view_sets, "SETS", {})
    for module in (views, variants):
        monkeypatch.setattr(module, "SETS", view_sets.SETS)

    @view_sets.data_set("mine", ["a", "b", "c", "d", "e"])
    def mine(source):
        random = np.random.default_rng(0)
        label = np.arange(150) % 3
        found = {name: random.normal(size=(150, 4)).astype(np.float32) + label[:, None] for name in "abcde"}
        found["b"][::7] = np.nan
        return {**found, "label": label}

    arms = ["fixed", "learned", "pairs-rest"]
    text, specs = small_runs("variants", tmp_path, tmp_path / "out", methods=arms)
    assert {spec.labels["arm"] for spec in specs} == set(arms)
    assert {len(settings) for settings in variants.GRIDS.values()} == {4}
    assert "variant minus fixed" in text
    assert "ends at" in text
    assert not any(spec.labels["stage"] == "test" for spec in specs)


def test_some_variants_see_all_views_in_every_step():
    for spec in variants.runs(Request()):
        k = len(view_sets.SETS[spec.labels["data"]].views)
        wanted = k if spec.labels["arm"] in variants.PARTS else None if k <= 4 else 4
        assert spec.settings["config"].get("views_per_step") == wanted


def test_a_learned_epsilon_has_the_gradient_of_the_divergence():
    x = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = VaryingEpsilon()
    loss.gap.tol = 1e-10
    epsilon = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss.divergence(x, None, epsilon), epsilon)
    step = 1e-5
    low, high = (
        float(m3g.matching_gap(x, epsilon=0.1 + sign * step, tol=1e-10)) / (0.1 + sign * step) for sign in (-1, 1)
    )
    assert float(slope) == pytest.approx((high - low) / (2 * step), rel=1e-4)


def test_an_annealed_epsilon_goes_from_one_end_to_the_other():
    loss = variants.build("annealed", {"ends": [0.2, 0.05]}, 3)
    seen = []
    for _ in range(4):
        seen.append(loss.epsilon())
        loss(torch.randn(2, 4, 3))
    assert seen == pytest.approx([0.2, 0.1, 0.05, 0.05])


def test_several_epsilons_are_a_mean_of_divergences():
    x = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = sum(m3g.matching_gap(x, epsilon=e) / e for e in (0.05, 0.2)) / 2
    assert torch.allclose(variants.build("several", {"epsilons": [0.05, 0.2]}, 1)(x), wanted, rtol=1e-2)


def test_pairs_are_a_mean_over_the_pairs_of_views():
    x = points(4, 6, 3)
    wanted = [m3g.matching_gap(x[[l, m]], epsilon=0.1) / 0.1 for l, m in itertools.combinations(range(4), 2)]
    found = variants.build("pairs", {"epsilon": 0.1}, 1)(x)
    assert torch.allclose(found, torch.stack(wanted).mean(), rtol=1e-2)


def test_rest_compares_a_view_with_the_mean_of_the_others():
    x = points(4, 6, 3)
    units = normalize(x, dim=-1)
    wanted = [
        m3g.matching_gap(torch.stack([units[l], units[[m for m in range(4) if m != l]].mean(0)]), epsilon=0.1) / 0.1
        for l in range(4)
    ]
    rest = variants.build("rest", {"epsilon": 0.1}, 1)(x)
    assert torch.allclose(rest, torch.stack(wanted).mean(), rtol=1e-2)
    pairs = variants.build("pairs", {"epsilon": 0.1}, 1)(x)
    assert torch.allclose(variants.build("pairs-rest", {"epsilon": 0.1}, 1)(x), pairs + rest)


def test_pairs_with_an_absent_entry_see_the_points_that_have_both():
    x, mask = points(3, 6, 3), torch.ones(3, 6, dtype=torch.bool)
    mask[2, 0] = False
    gaps = {pair: m3g.matching_gap(x[list(pair)], epsilon=0.1) / 0.1 for pair in [(0, 1)]}
    gaps |= {pair: m3g.matching_gap(x[list(pair)][:, 1:], epsilon=0.1) / 0.1 for pair in [(0, 2), (1, 2)]}
    wanted = (6 * gaps[0, 1] + 5 * gaps[0, 2] + 5 * gaps[1, 2]) / 16
    assert torch.allclose(variants.build("pairs", {"epsilon": 0.1}, 1)(x, mask=mask), wanted, rtol=1e-2)


def test_a_rising_epsilon_of_pairs_goes_from_one_end_to_the_other():
    loss = variants.build("pairs-rest-rising", {"epsilon": 0.04, "final_epsilon": 0.4}, 1)
    assert loss.moves
    assert not variants.build("pairs", {"epsilon": 0.1}, 1).moves
    for share, epsilon in ((0.0, 0.04), (0.5, 0.04 * 10**0.5), (1.0, 0.4)):
        loss.set_progress(share)
        assert loss.epsilon == pytest.approx(epsilon)


def test_soft_targets_move_the_target_and_nothing_else():
    x = normalize(points(2, 3, 6, 4), dim=-1)
    loss = SoftTargets(0.1, weight=0.3, sharp=0.05)
    q = soft_target(x, 0.05)
    assert torch.allclose(q.sum(-1), torch.full((2, 6), 1 / 6, dtype=x.dtype), atol=1e-3)
    target = 0.7 * torch.eye(6, dtype=x.dtype) / 6 + 0.3 * q
    costs = [((x[:, l, :, None] - x[:, m, None]) ** 2).sum(-1) / 9 for l, m in itertools.combinations(range(3), 2)]
    true = sum((torch.eye(6, dtype=x.dtype) / 6 * cost).sum((-2, -1)) for cost in costs)
    moved = sum((target * cost).sum((-2, -1)) for cost in costs)
    assert torch.allclose(loss(x), m3g.matching_gap(x, epsilon=0.1) + moved - true, rtol=1e-2)
