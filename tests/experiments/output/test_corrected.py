import math

import numpy as np
import pytest
from scipy import stats

from m3g.experiments.output.corrected import Comparison, compare_splits, holm, mean_interval, verdict


def test_independent_draws_give_the_paired_t_test():
    random = np.random.default_rng(0)
    ours, theirs = (dict(enumerate(random.normal(size=8))) for _ in range(2))
    expected = stats.ttest_rel(list(ours.values()), list(theirs.values()))
    found = compare_splits(ours, theirs, test_to_train=0.0)
    interval = expected.confidence_interval()
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.mean - found.half_width == pytest.approx(interval.low)


def test_overlap_widens_the_interval_by_its_factor():
    values = {0: 0.1, 1: 0.3, 2: 0.2, 3: 0.6}
    zero = dict.fromkeys(values, 0.0)
    narrow, wide = (compare_splits(values, zero, test_to_train=ratio) for ratio in (0.0, 1 / 3))
    assert wide.half_width / narrow.half_width == pytest.approx(math.sqrt((1 / 4 + 1 / 3) / (1 / 4)))
    assert wide.p_value > narrow.p_value
    assert mean_interval(list(values.values()), test_to_train=1 / 3) == pytest.approx(wide.half_width)


def test_only_common_splits_are_compared():
    assert compare_splits({0: 1.0, 1: 2.0, 2: 4.0}, {1: 1.0, 2: 1.0, 3: 9.0}, test_to_train=0.0).splits == 2
    alone = compare_splits({0: 1.0}, {0: 0.5}, test_to_train=0.0)
    assert alone.half_width == math.inf
    assert verdict(alone, 0.0) == "tie"


def test_holm_is_monotone_and_bounded():
    p_values = dict(zip("abcde", (0.001, 0.2, 0.011, 0.012, 0.9)))
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    assert adjusted["a"] == pytest.approx(0.005)
    assert adjusted["c"] == adjusted["d"] == pytest.approx(0.044)
    assert adjusted["e"] == 0.9
    assert all(adjusted[name] >= value for name, value in p_values.items())


@pytest.mark.parametrize(("mean", "adjusted", "expected"), [(1, 0.01, "ahead"), (-1, 0.01, "behind"), (1, 0.06, "tie")])
def test_the_verdict_follows_the_adjusted_p_value(mean, adjusted, expected):
    assert verdict(Comparison(mean, 0.1, 5, 0.001), adjusted) == expected
