"""Splits of rows by class and by group."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g.data.splits import read_split, split_rows


@settings(deadline=None, max_examples=40)
@given(n=st.integers(20, 200), seed=st.integers(0, 5), classes=st.integers(1, 3))
def test_splits_are_a_partition_and_keep_class_frequencies(n, seed, classes):
    labels = np.arange(n) % classes
    parts = split_rows(n, val=0.1, test=0.2, seed=seed, labels=labels)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(n))
    assert [len(parts[name]) for name in ("test", "val")] == [round(0.2 * n), round(0.1 * n)]
    for c in range(classes):
        for name, share in (("test", 0.2), ("val", 0.1)):
            assert abs((labels[parts[name]] == c).sum() - share * (labels == c).sum()) < 1.5
    again = split_rows(n, val=0.1, test=0.2, seed=seed, labels=labels)
    assert all((parts[name] == again[name]).all() for name in parts)


def test_other_seeds_give_other_splits():
    assert set(split_rows(100, val=0.1, test=0.2, seed=0)["test"]) != set(
        split_rows(100, val=0.1, test=0.2, seed=1)["test"]
    )


@settings(deadline=None, max_examples=20)
@given(subjects=st.integers(3, 12), seed=st.integers(0, 5))
def test_a_group_is_in_one_split(subjects, seed):
    groups = np.array([f"s{i % subjects}" for i in range(10 * subjects)])
    parts = split_rows(len(groups), val=0.1, test=0.2, seed=seed, groups=groups)
    assert sorted(np.concatenate(list(parts.values()))) == list(range(len(groups)))
    sets = [set(groups[rows]) for rows in parts.values()]
    assert all(sets)
    assert sum(map(len, sets)) == subjects


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 10, "val": 0.5, "test": 0.5}, "add up to less than 1"),
        ({"n": 10, "val": -0.1, "test": 0.5}, "add up to less than 1"),
        ({"n": 2, "val": 0.1, "test": 0.1}, "leave at least one row to train on"),
        ({"n": 4, "val": 0.1, "test": 0.1, "groups": np.zeros(4)}, "leave at least one group to train on"),
    ],
)
def test_impossible_splits_are_errors(options, words):
    with pytest.raises(ValueError, match=words):
        split_rows(**options, seed=0)


def test_a_list_of_subjects_may_have_a_byte_order_mark(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\na,train\nb,test\n", encoding="utf-8-sig")
    parts = read_split(tmp_path / "split.csv", np.array(["b", "a", "a"]))
    assert {name: rows.tolist() for name, rows in parts.items()} == {"train": [1, 2], "val": [], "test": [0]}


def test_an_error_in_a_list_of_subjects_names_its_line(tmp_path):
    (tmp_path / "split.csv").write_text("subject,split\n\n\na,train\na,test\n")
    with pytest.raises(ValueError, match=r"'train' and in 'test' \(line 5\)"):
        read_split(tmp_path / "split.csv", np.array(["a"]))
    (tmp_path / "split.csv").write_text("subject,split\né,train\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"splits must be a \.csv file in UTF-8"):
        read_split(tmp_path / "split.csv", np.array(["é"]))
