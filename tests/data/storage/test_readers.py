"""Arrays from files of every format."""

import numpy as np
import pandas
import pytest
import torch

from m3g.data import Arrays


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
