"""Paired differences and ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, ttest_rel

from m3g.experiments.output.comparison import average_rank, control_table, paired, within_splits

SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=12)


@given(SCORES)
def test_intervals_are_those_of_students_t(pairs):
    ours, theirs = (dict(enumerate(part)) for part in zip(*pairs))
    found = paired(ours, theirs)
    differences = np.subtract(*zip(*pairs))
    if differences.std() < 1e-9:
        return
    expected = ttest_rel(*zip(*pairs)).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean - found.half_width, found.mean + found.half_width], expected, atol=1e-9)
    assert found.smallest > found.half_width


def test_only_settings_that_both_have_count():
    assert paired({0: 0.5, 1: 0.6, 2: 0.1}, {0: 0.4, 1: 0.5, 3: 0.9}).pairs == 2
    assert paired({0: 0.5}, {0: 0.4}).verdict == "tie"
    assert paired({0: 0.5}, {1: 0.4}).pairs == 0
    found = paired({0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.4, 1: 0.51, 2: 0.59})
    assert found.verdict == "ahead"
    assert found.mean == pytest.approx(0.1)


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=6))
def test_ranks_share_ties(table):
    arms = {name: dict(enumerate(float(row[i]) for row in table)) for i, name in enumerate("abc")}
    expected = np.mean([rankdata([-value for value in row]) for row in table], axis=0)
    assert list(average_rank(arms).values()) == pytest.approx(expected.tolist())


@given(SCORES)
def test_intervals_within_splits_are_those_of_the_paired_difference(pairs):
    """Of two arms, whose difference has the sum of their two variances."""
    ours, theirs = (dict(enumerate(part)) for part in zip(*pairs))
    found = within_splits({"ours": ours, "theirs": theirs})
    expected = 100 * paired(ours, theirs).half_width / 2**0.5
    assert [width for _, width in found.values()] == pytest.approx([expected, expected], abs=1e-9)
    assert found["ours"][0] == pytest.approx(100 * np.mean(list(ours.values())))


def test_arms_that_share_no_splits_have_their_own_intervals():
    found = within_splits({"a": {0: 0.5, 1: 0.7}, "b": {2: 0.4, 3: 0.4}})
    assert found["a"][1] > 0
    assert found["b"][1] == 0


def test_a_rival_in_a_control_is_compared_with_m3g_in_the_same_or_the_wider_one():
    main = {"m3g": {0: 0.5, 1: 0.51}, "rival": {0: 0.4, 1: 0.42}}
    alone = {"m3g": {0: 0.7, 1: 0.72}, "rival": {0: 0.6, 1: 0.61}}
    controls = {
        "no teacher": alone,
        "no teacher, both": {"rival": {0: 0.6, 1: 0.61}},
        "n = 8": {"rival": {0: 0.4, 1: 0.42}},
    }
    lines = control_table(main, controls).splitlines()[2:]
    assert [line.split(" | ")[5].split(" ")[0] for line in lines] == ["—", "+10.5", "+10.5", "+9.5"]
