"""Views in files of arrays: rows, labels, missing entries, splits, and errors."""

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m3g._catalogue import DATA
from m3g.data import Arrays, MultipleFeatures


def test_rows_stay_together(tmp_path):
    for l in range(3):
        np.save(tmp_path / f"{l}.npy", np.arange(50.0) * (l + 1))
    np.save(tmp_path / "names.npy", np.array([f"class {i % 5}" for i in range(50)]))
    paths = [tmp_path / f"{l}.npy" for l in range(3)]
    data = Arrays(paths, labels=tmp_path / "names.npy", standardize=False, batch_size=7)
    assert data.class_names == [f"class {c}" for c in range(5)]
    for batch in [*data.train_dataloader(), *data.val_dataloader(), *data.test_dataloader()]:
        for l, view in enumerate(batch["views"]):
            assert torch.equal(view[:, 0], batch["index"].float() * (l + 1))
        assert torch.equal(batch["label"], batch["index"] % 5)


def test_labels_may_be_words_or_numbers_in_a_table(tmp_path):
    a, b = save(tmp_path, a=GOOD, b=GOOD)
    pandas.DataFrame({"kind": ["dog", "cat"] * 10}).to_csv(tmp_path / "words.csv", index=False)
    pandas.DataFrame({"kind": ["dog", "cat"] * 10}).to_parquet(tmp_path / "words.parquet")
    for name in ("words.csv", "words.parquet"):
        data = Arrays([a, b], labels=tmp_path / name, batch_size=4)
        assert data.class_names == ["cat", "dog"]
        assert torch.equal(data.arrays("train")[2], 1 - data.datasets["train"].index % 2)
    pandas.DataFrame({"kind": [1.0, None] * 10}).to_csv(tmp_path / "holes.csv", index=False)
    with pytest.raises(ValueError, match="labels must have a class for every row, got NaN in row 1"):
        Arrays([a, b], labels=tmp_path / "holes.csv")


def test_missing_rows_as_nan_or_as_mask_are_the_same(tmp_path):
    random = np.random.default_rng(1)
    views = [random.normal(size=(30, 3)) for _ in range(2)]
    present = np.ones((2, 30), dtype=bool)
    present[0, ::7] = False
    present[1, 3] = False
    np.save(tmp_path / "mask.npy", present)
    np.save(tmp_path / "maskT.npy", present.T.astype(np.uint8))
    for l, view in enumerate(views):
        np.save(tmp_path / f"full{l}.npy", view)
        view[~present[l]] = np.nan
        np.save(tmp_path / f"nan{l}.npy", view)
    ways = [
        Arrays([tmp_path / "nan0.npy", tmp_path / "nan1.npy"]),
        Arrays([tmp_path / "full0.npy", tmp_path / "full1.npy"], mask=tmp_path / "mask.npy"),
        Arrays([tmp_path / "full0.npy", tmp_path / "full1.npy"], mask=tmp_path / "maskT.npy"),
    ]
    expected, expected_mask, _ = ways[0].arrays("train")
    assert torch.equal(expected_mask, torch.from_numpy(present)[:, ways[0].datasets["train"].index])
    assert all(
        torch.equal(view[~observed], torch.zeros_like(view[~observed]))
        for view, observed in zip(expected, expected_mask)
    )
    for way in ways[1:]:
        actual, mask, _ = way.arrays("train")
        assert torch.equal(mask, expected_mask)
        assert all(torch.equal(a, b) for a, b in zip(actual, expected))


def save(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [folder / f"{name}.npy" for name in arrays]


GOOD = np.arange(40.0).reshape(20, 2)


def broken(value, where):
    array = GOOD.copy()
    array[where] = value
    return array


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (GOOD[:-1], "same number of rows.*a 20, b 19"),
        (broken(np.nan, np.s_[:, 1]), "only NaN in column 1"),
        (broken(np.nan, np.s_[4, 0]), "row 4, column 0: fill it in"),
        (broken(np.inf, np.s_[5, 1]), "row 5, column 1"),
        (np.full_like(GOOD, np.nan), "at least one present row"),
        (np.array(["x"] * 20), "numbers"),
        (np.zeros((0, 3)), "same number of rows"),
        (np.zeros((20, 0)), r"at least one column, got shape \(20, 0\)"),
        (np.full((20, 2), 1j), "real numbers, got complex128"),
        (np.full((20, 2), 1e300), "got inf in row 0, column 0"),
    ],
)
def test_errors_of_invalid_views_are_one_sentence(tmp_path, second, words):
    with pytest.raises(ValueError, match=words) as caught:
        Arrays(save(tmp_path, a=GOOD, b=second))
    assert "\n" not in str(caught.value)


def test_other_errors_are_one_sentence(tmp_path):
    paths = save(tmp_path, a=GOOD, b=GOOD, short=np.arange(5), objects=np.array([{}, {}], dtype=object))
    a, b, short, objects = paths
    sevens, words = save(tmp_path, sevens=np.full((2, 20), 7), words=np.full((2, 20), "yes"))
    measured, alike = save(tmp_path, measured=np.random.default_rng(0).standard_normal(20), alike=np.ones(20))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "words.csv").write_text("x,y\n1,two\n")
    (tmp_path / "headless.csv").write_text("1.5,1.5\n2.5,3.5\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "rowless.csv").write_text("x,y\n")
    (tmp_path / "longer.csv").write_text("x\n1,5,2\n")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "damaged.xlsx").write_bytes(b"PK and nothing more")
    np.savez(tmp_path / "two.npz", x=GOOD, y=GOOD)
    (tmp_path / "damaged.npz").write_bytes((tmp_path / "two.npz").read_bytes()[:-30])
    rows_without_views = GOOD.copy()
    rows_without_views[2] = np.nan
    np.save(tmp_path / "gap.npy", rows_without_views)
    cases = [
        ({"paths": [a]}, "k >= 2 files"),
        ({"paths": str(a)}, "k >= 2 files"),
        ({"paths": [a, tmp_path / "none.npy"]}, "files that exist, got .*none.npy"),
        ({"paths": [a, tmp_path / "b.txt"]}, "files that end in"),
        ({"paths": [a, tmp_path / "damaged.xlsx"]}, "must be files that can be read"),
        ({"paths": [a, objects]}, "must be files that can be read"),
        ({"paths": [a, tmp_path / "text.npy"]}, "must be files that can be read"),
        ({"paths": [a, tmp_path / "headless.csv"]}, "first line has the column names"),
        ({"paths": [a, tmp_path / "empty.csv"]}, "must be files that can be read"),
        ({"paths": [a, tmp_path / "rowless.csv"]}, "at least one row"),
        ({"paths": [a, tmp_path / "longer.csv"]}, "more cells than the 1 names"),
        ({"paths": [a, tmp_path / "damaged.parquet"]}, "must be files that can be read"),
        ({"paths": [a, tmp_path / "damaged.npz"]}, "must be files that can be read"),
        ({"paths": [a, tmp_path / "words.csv"]}, "only numeric columns, but column 'y'"),
        ({"paths": [a, tmp_path / "two.npz"]}, "files with one array, got x, y"),
        ({"paths": [a, f"{tmp_path / 'two.npz'}:z"]}, r"must name an array of .* \(x, y\), got 'z'"),
        ({"paths": [tmp_path / "gap.npy"] * 2}, "row 2 must have at least one view"),
        ({"paths": [a, b], "labels": short}, "labels must have 20 entries"),
        ({"paths": [a, b], "mask": short}, "mask must be an array of shape"),
        ({"paths": [a, b], "view_names": ["one"]}, "view_names must be 2 names"),
        ({"paths": [a, b], "view_names": ["one", "one"]}, "view_names must be distinct"),
        ({"paths": [a, b], "mask": sevens}, "mask must contain only true and false, or 1 and 0"),
        ({"paths": [a, b], "mask": words}, "mask must contain only true and false, or 1 and 0"),
        ({"paths": [a, b], "labels": measured}, "20 different values in 20 rows: omit labels"),
        ({"paths": [a, b], "labels": alike}, "at least 2 classes, got only 1.0"),
        ({"paths": [a, b], "num_workers": -1}, "num_workers must be a whole number of at least 0"),
        ({"paths": [a, b], "seed": -1}, "seed must be a whole number from 0"),
        ({"paths": [a, b], "split_seed": -1}, "split_seed must be a whole number from 0"),
        ({"paths": [a, b], "batch_size": 0}, "batch_size must be"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            Arrays(**options)
        assert "\n" not in str(caught.value), options
    with pytest.raises(ValueError, match="at most 14, the number of training rows, got 64"):
        Arrays([a, b], batch_size=64).train_dataloader()
    assert Arrays([a, b]).batch_size == 14  # all of them by default


@settings(deadline=None, max_examples=10)
@given(size=st.integers(1, 14))
def test_training_batches_are_full_and_evaluation_complete(size):
    data = MultipleFeatures(batch_size=size * 10)
    train = list(data.train_dataloader())
    assert all(len(batch["index"]) == size * 10 for batch in train)
    assert len(train) == 1400 // (size * 10)
    assert sum(len(batch["index"]) for batch in data.loader("test")) == 400


def test_an_empty_split_is_reported():
    data = MultipleFeatures(val=0.0)
    assert data.num_rows("val") == 0
    with pytest.raises(ValueError, match="split must have at least one row, got none in 'val'"):
        data.arrays("val")
    with pytest.raises(ValueError, match="split must be one of"):
        data.arrays("training")


def test_creating_a_loader_does_not_change_the_random_state():
    data = MultipleFeatures()
    state = torch.random.get_rng_state()
    next(iter(data.train_dataloader()))
    next(iter(data.loader("val")))
    assert torch.equal(state, torch.random.get_rng_state())


def test_every_data_set_is_listed_with_a_summary():
    assert all(entry.headline().endswith(".") for entry in DATA.values())
