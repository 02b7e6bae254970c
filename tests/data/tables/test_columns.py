"""Stored columns of a table, and files of arrays that join it."""

import numpy as np
import torch

from animals import OPTIONS
from m3g.data import Objects
from m3g.data.storage import rows as stored_rows


def test_groups_stay_together_and_files_of_arrays_join_the_table(animals, tmp_path):
    folder, content = animals
    more = np.random.default_rng(0).normal(5, 2, (40, 3))
    more[4] = np.nan
    np.save(tmp_path / "more.npy", more)
    data = Objects(
        folder / "objects.csv", paths=[tmp_path / "more.npy"], groups="home", labels="kind", batch_size=8, val=0.2
    )
    assert data.view_names[-1] == "more"
    homes = [{content[int(i)]["home"] for i in data.datasets[split].index} for split in ("train", "val", "test")]
    assert not homes[0] & homes[1]
    assert not homes[0] & homes[2]
    views, mask, _ = data.arrays("train")
    present = views[-1][mask[-1]]
    torch.testing.assert_close(present.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(present.std(0, correction=0), torch.ones(3))


def test_large_views_are_stored_in_a_file_unchanged(animals, monkeypatch, tmp_path):
    folder, _ = animals
    expected = Objects(folder / "objects.csv", **OPTIONS)
    monkeypatch.setattr(stored_rows, "IN_MEMORY", 100)
    monkeypatch.setattr(stored_rows, "CHUNK", 64)
    stored = Objects(folder / "objects.csv", **OPTIONS)
    assert stored.datasets["train"].columns[2].rows._file is not None
    for ours, theirs in zip(stored.arrays("train")[0], expected.arrays("train")[0]):
        torch.testing.assert_close(ours, theirs)
