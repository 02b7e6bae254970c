"""Rows in memory and in files."""

import numpy as np
import pytest

from m3g.data.storage import rows
from m3g.data.storage.rows import Collector, Rows, npy_rows


@pytest.mark.parametrize("limit", [2**27, 100])
def test_pieces_are_collected_in_memory_or_in_a_file(monkeypatch, limit):
    monkeypatch.setattr(rows, "IN_MEMORY", limit)
    monkeypatch.setattr(rows, "CHUNK", 64)
    whole = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    collector = Collector()
    for piece in np.split(whole, [4, 5, 20]):
        collector.add(piece)
    stored = collector.rows()
    assert (stored._file is not None) == (limit == 100)
    assert (stored.shape, stored.dtype, len(stored)) == ((30, 3), np.float32, 30)
    assert np.array_equal(stored.take(np.array([29, 0, 7])), whole[[29, 0, 7]])
    starts, chunks = zip(*stored.chunks())
    assert np.array_equal(np.concatenate(chunks), whole)
    assert list(starts) == list(range(0, 30, 5))  # five rows of 12 bytes in 64


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_is_read_on_demand_in_either_order(tmp_path, order):
    whole = np.arange(24.0).reshape(6, 4)
    np.save(tmp_path / "a.npy", np.asarray(whole, order=order))
    stored = npy_rows(tmp_path / "a.npy")
    assert np.array_equal(stored.take(np.array([5, 2])), whole[[5, 2]])


def test_freed_memory_is_returned_once_rows_are_in_a_file(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(rows, "return_freed_memory", lambda: calls.append(1))
    np.save(tmp_path / "a.npy", np.zeros((4, 3)))
    Rows((4, 3), np.dtype(float), array=np.zeros((4, 3)))
    assert not calls
    npy_rows(tmp_path / "a.npy")
    assert calls
