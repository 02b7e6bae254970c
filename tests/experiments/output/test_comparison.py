"""Paired differences and ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from m3g.evaluation.paired import Difference, paired
from m3g.experiments.output.comparison import (
    average_rank,
    control_table,
    difference_table,
    holm,
    holm_verdicts,
    within_splits,
)

SCORES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=12)


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=6))
def test_tied_arms_share_their_mean_rank(table):
    arms = {name: dict(enumerate(float(row[i]) for row in table)) for i, name in enumerate("abc")}
    expected = np.mean([rankdata([-value for value in row]) for row in table], axis=0)
    assert list(average_rank(arms).values()) == pytest.approx(expected.tolist())


@given(SCORES)
def test_intervals_within_splits_are_those_of_the_paired_difference(pairs):
    """The difference of two arms has the sum of their variances."""
    ours, theirs = (dict(enumerate(part)) for part in zip(*pairs))
    intervals = within_splits({"ours": ours, "theirs": theirs})
    expected = 100 * paired(ours, theirs).half_width / 2**0.5
    assert [width for _, width in intervals.values()] == pytest.approx([expected, expected], abs=1e-9)
    assert intervals["ours"][0] == pytest.approx(100 * np.mean(list(ours.values())))


def test_arms_that_share_no_splits_have_their_own_intervals():
    intervals = within_splits({"a": {0: 0.5, 1: 0.7}, "b": {2: 0.4, 3: 0.4}})
    assert intervals["a"][1] > 0
    assert intervals["b"][1] == 0


def test_methods_of_a_control_are_compared_with_m3g_in_it_or_in_the_control_it_extends():
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
    random = np.random.default_rng(0)
    ours, theirs = ({(k, seed): random.random() for k in (2, 3, 4) for seed in range(4)} for _ in range(2))
    table = difference_table({"a": ours, "b": theirs}, "a", test_to_train=0.5, split_of=lambda key: key[1])
    assert [cell.strip() for cell in table.splitlines()[2].split("|")][4] == "4"


def test_tables_apply_holms_correction():
    """p = 0.03 is significant for one comparison, but not among three."""
    values = dict(enumerate((0.11, 0.02, 0.14, 0.09, 0.03)))
    zero = dict.fromkeys(values, 0.0)
    noise = dict(enumerate((0.1, -0.1, 0.05, -0.04, 0.0)))
    p_value = paired(values, zero).p_value
    assert 0.05 / 3 < p_value < 0.05
    alone = difference_table({"a": values, "b": zero}, "a", test_to_train=0.0)
    rivals = {"b": zero, "c": {seed: values[seed] - noise[seed] for seed in values}}
    rivals["d"] = {seed: values[seed] + noise[seed] for seed in values}
    several = difference_table({"a": values, **rivals}, "a", test_to_train=0.0)
    assert alone.splitlines()[2].split()[-2] == "ahead"
    assert several.splitlines()[2].split()[-2] == "tie"


def test_holm_is_monotone_and_bounded():
    p_values = dict(zip("abcde", (0.001, 0.2, 0.011, 0.012, 0.9)))
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    assert adjusted["a"] == pytest.approx(0.005)
    assert adjusted["c"] == adjusted["d"] == pytest.approx(0.044)
    assert adjusted["e"] == 0.9
    assert all(adjusted[name] >= value for name, value in p_values.items())


def test_the_verdict_follows_the_adjusted_p_value():
    compared = {"ahead": (1, 5, 0.005), "behind": (-1, 5, 0.005), "tie": (1, 5, 0.06), "alone": (1, 1, 0.001)}
    verdicts = holm_verdicts({name: Difference(mean, 0.1, pairs, p) for name, (mean, pairs, p) in compared.items()})
    assert verdicts == {"ahead": "ahead", "behind": "behind", "tie": "tie"}
