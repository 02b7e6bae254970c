"""Arrays from files of every format."""

import numpy as np
import pandas
import pytest
import torch

from m3g.data import Arrays
from m3g.data.storage.readers import ArrayFiles


@pytest.fixture
def three(tmp_path):
    """Three files of 40 rows in three formats."""
    random = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", random.normal(3, 5, (40, 4)))
    np.savez(tmp_path / "b.npz", x=random.normal(size=(40, 2, 3)), y=np.arange(40) % 4)
    table = pandas.DataFrame(random.normal(size=(40, 3)), columns=["u", "v", "w"])
    table.to_csv(tmp_path / "c.csv", index=False)
    table.to_parquet(tmp_path / "c.parquet")
    return [str(tmp_path / "a.npy"), f"{tmp_path / 'b.npz'}:x", str(tmp_path / "c.csv")]


def test_files_of_every_format_are_read(three, tmp_path):
    data = Arrays(three, labels=f"{tmp_path / 'b.npz'}:y", batch_size=8)
    assert data.view_names == ["a", "b", "c"]
    assert data.view_shapes == [(4,), (2, 3), (3,)]
    assert data.num_classes == 4
    batch = next(iter(data.train_dataloader()))
    assert [tuple(view.shape) for view in batch["views"]] == [(8, 4), (8, 2, 3), (8, 3)]
    assert batch["mask"] is None
    parquet = Arrays([three[0], str(tmp_path / "c.parquet")])
    for ours, theirs in zip(parquet.arrays("test")[0][1], Arrays(three).arrays("test")[0][2]):
        torch.testing.assert_close(ours, theirs)
    assert Arrays(three).num_classes is None
    assert Arrays(three).arrays("val")[2] is None


def test_workbooks_and_json_equal_delimited_files(tmp_path):
    table = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["u", "v", "w"])
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_json(tmp_path / "b.json", orient="records", double_precision=15)
    table.to_excel(tmp_path / "c.xlsx", index=False)
    views = Arrays([tmp_path / name for name in ("a.csv", "b.json", "c.xlsx")]).arrays("train")[0]
    torch.testing.assert_close(views[1], views[0])
    torch.testing.assert_close(views[2], views[0])


def test_columns_that_identify_rows_are_dropped_and_constant_ones_noted(tmp_path):
    random = np.random.default_rng(0)
    table = pandas.DataFrame(random.normal(size=(40, 2)), columns=["u", "v"])
    table.to_csv(tmp_path / "a.csv", index=False)
    counts = random.integers(0, 5, 40)  # whole numbers that repeat are a feature
    numbered = table.assign(sample_id=random.permutation(900)[:40], counts=counts, site=7)
    numbered.to_csv(tmp_path / "b.csv", index=False)
    data = Arrays([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert data.view_shapes == [(2,), (4,)]
    first, second = data.notes
    assert f"column 'sample_id' of {str(tmp_path / 'b.csv')!r} identifies the rows and is not used" in first
    assert second.startswith("column 'site' of")
    assert second.endswith("is constant and carries no information")
    numbered.assign(other=1).to_csv(tmp_path / "b.csv", index=False)
    assert Arrays([tmp_path / "a.csv", tmp_path / "b.csv"]).notes[1].startswith("2 columns of")


def test_booleans_and_numbers_are_one_array(tmp_path):
    pandas.DataFrame({"smoker": [True, False], "age": [40, 51]}).to_csv(tmp_path / "a.csv", index=False)
    with ArrayFiles() as files:
        assert files.read(tmp_path / "a.csv").tolist() == [[1, 40], [0, 51]]


def test_a_table_of_only_identifiers_is_kept_without_a_note(tmp_path):
    pandas.DataFrame({"id": [31, 12, 25]}).to_csv(tmp_path / "a.csv", index=False)
    notes = []
    with ArrayFiles() as files:
        assert files.read(tmp_path / "a.csv", notes=notes).tolist() == [[31], [12], [25]]
    assert notes == []


def test_a_sparse_matrix_without_one_of_its_arrays_is_an_error(tmp_path):
    np.savez(tmp_path / "a.npz", format=b"csr", shape=[2, 2], data=[1.0, 2.0], indices=[0, 1])
    with ArrayFiles() as files, pytest.raises(ValueError, match=r"paths must be files that can be read.*indptr"):
        files.read(tmp_path / "a.npz")
