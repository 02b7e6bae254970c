"""Intervals of paired differences."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from m3g.evaluation.paired import bootstrap, interval_of_mean, paired

SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=12)


@given(SCORES)
def test_independent_draws_give_the_paired_t_test(pairs):
    ours, theirs = (dict(enumerate(part)) for part in zip(*pairs))
    difference = paired(ours, theirs)
    if np.subtract(*zip(*pairs)).std() < 1e-9:
        return
    expected = ttest_rel(*zip(*pairs))
    bounds = [difference.mean - difference.half_width, difference.mean + difference.half_width]
    np.testing.assert_allclose(bounds, expected.confidence_interval(0.95), atol=1e-9)
    assert difference.p_value == pytest.approx(expected.pvalue, abs=1e-9)
    assert difference.smallest > difference.half_width


def test_overlap_widens_the_interval_by_its_factor():
    values = {0: 0.1, 1: 0.3, 2: 0.2, 3: 0.6}
    zero = dict.fromkeys(values, 0.0)
    narrow, wide = (paired(values, zero, test_to_train=ratio) for ratio in (0.0, 1 / 3))
    assert wide.half_width / narrow.half_width == pytest.approx(math.sqrt((1 / 4 + 1 / 3) / (1 / 4)))
    assert wide.p_value > narrow.p_value
    assert interval_of_mean(list(values.values()), test_to_train=1 / 3) == pytest.approx(wide.half_width)


def test_settings_of_one_split_are_one_unit():
    """Numbers of views that share a split are averaged, so that they do not narrow the interval."""
    random = np.random.default_rng(0)
    ours, theirs = ({(k, seed): random.random() for k in (2, 3, 4) for seed in range(4)} for _ in range(2))
    difference = paired(ours, theirs, test_to_train=0.5, split_of=lambda key: key[1])
    means = [{seed: np.mean([part[k, seed] for k in (2, 3, 4)]) for seed in range(4)} for part in (ours, theirs)]
    assert difference.pairs == 4
    assert difference.half_width == pytest.approx(paired(*means, test_to_train=0.5).half_width)


def test_only_common_settings_are_compared():
    assert paired({0: 0.5, 1: 0.6, 2: 0.1}, {0: 0.4, 1: 0.5, 3: 0.9}).pairs == 2
    assert paired({0: 0.5}, {0: 0.4}).verdict == "tie"
    assert paired({0: 0.5}, {0: 0.4}).half_width == math.inf
    assert paired({0: 0.5}, {1: 0.4}).pairs == 0
    difference = paired({0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.4, 1: 0.51, 2: 0.59})
    assert difference.verdict == "ahead"
    assert difference.mean == pytest.approx(0.1)


def test_intervals_have_their_nominal_coverage():
    """Of 200 pairs of equal arms, about one in twenty has an interval that excludes 0."""
    rng = np.random.default_rng(0)
    wrong = {"paired": 0, "bootstrap": 0}
    for _ in range(200):
        ours, theirs = (dict(enumerate(rng.standard_normal(40))) for _ in range(2))
        wrong["paired"] += paired(ours, theirs).verdict != "tie"
        wrong["bootstrap"] += bootstrap(ours, theirs).verdict != "tie"
    assert all(1 <= number <= 24 for number in wrong.values()), wrong
