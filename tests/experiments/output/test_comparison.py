"""Paired differences and ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, ttest_rel

from m3g.evaluation.paired import paired
from m3g.experiments.output.comparison import average_rank, control_table, difference_table, within_splits
from m3g.experiments.output.corrected import compare_splits

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


def test_only_common_settings_are_compared():
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
    """The difference of two arms has the sum of their variances."""
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
    lines = control_table(main, controls, test_to_train=0.0).splitlines()[2:]
    assert [line.split(" | ")[5].split(" ")[0] for line in lines] == ["—", "+10.5", "+10.5", "+9.5"]


def test_settings_of_one_split_are_one_unit():
    """Numbers of views that share a split are averaged, so that they do not narrow the interval."""
    random = np.random.default_rng(0)
    ours, theirs = ({(k, seed): random.random() for k in (2, 3, 4) for seed in range(4)} for _ in range(2))
    found = compare_splits(ours, theirs, test_to_train=0.5, split_of=lambda key: key[1])
    means = [{seed: np.mean([part[k, seed] for k in (2, 3, 4)]) for seed in range(4)} for part in (ours, theirs)]
    assert found.splits == 4
    assert found.half_width == pytest.approx(compare_splits(*means, test_to_train=0.5).half_width)
    table = difference_table({"a": ours, "b": theirs}, "a", test_to_train=0.5, split_of=lambda key: key[1])
    assert [cell.strip() for cell in table.splitlines()[2].split("|")][4] == "4"


def test_tables_apply_holms_correction():
    """p = 0.03 is significant for one comparison, but not among three."""
    values = dict(enumerate((0.11, 0.02, 0.14, 0.09, 0.03)))
    zero = dict.fromkeys(values, 0.0)
    noise = dict(enumerate((0.1, -0.1, 0.05, -0.04, 0.0)))
    p_value = compare_splits(values, zero, test_to_train=0.0).p_value
    assert 0.05 / 3 < p_value < 0.05
    alone = difference_table({"a": values, "b": zero}, "a", test_to_train=0.0)
    rivals = {"b": zero, "c": {seed: values[seed] - noise[seed] for seed in values}}
    rivals["d"] = {seed: values[seed] + noise[seed] for seed in values}
    several = difference_table({"a": values, **rivals}, "a", test_to_train=0.0)
    assert alone.splitlines()[2].split()[-2] == "ahead"
    assert several.splitlines()[2].split()[-2] == "tie"
