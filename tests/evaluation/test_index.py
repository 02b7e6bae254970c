"""Approximate index of many points."""

import pytest
import torch

from m3g.costs import CircularVariance, MultilinearProduct
from m3g.evaluation.search import search


@pytest.mark.parametrize("readout", ["mean", CircularVariance(), MultilinearProduct()])
def test_an_approximate_index_finds_nearly_the_same_neighbours(tmp_path, monkeypatch, readout):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rng = torch.Generator().manual_seed(0)
    centre = torch.randn(4000, 16, generator=rng)
    objects = torch.stack([centre + 0.3 * torch.randn(4000, 16, generator=rng) for _ in range(3)])
    mask = torch.rand(3, 4000, generator=rng) > 0.2
    mask[0, ~mask.any(0)] = True
    rows = torch.arange(50)
    query_mask = torch.zeros(3, 50, dtype=torch.bool).index_fill(0, torch.tensor([0, 1]), True)
    options = {"query_mask": query_mask, "mask": mask, "top": 10, "without": rows, "readout": readout}
    exact = search(objects[:, :50], objects, **options)
    for _ in range(2):  # built, and read again
        approximate = search(objects[:, :50], objects, approximate=True, **options)
        hits = [len(set(a) & set(b)) for a, b in zip(approximate.indices.tolist(), exact.indices.tolist())]
        assert sum(hits) >= 0.95 * 500
        assert not (approximate.indices == rows.unsqueeze(1)).any()
    assert len(list((tmp_path / "m3g" / "indices").glob("*.faiss"))) == (1 if readout == "mean" else 3)
