"""Files that are read on demand: they give the same batches and require little memory."""

import inspect
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

import forked
from m3g import data as data_sets
from m3g._catalogue import DATA
from m3g.data import Arrays, Objects
from m3g.data.tables import array_reader, columns, source

MEGABYTES = int(os.environ.get("M3G_LARGE_MB", "300"))  # of a parquet file; M3G_LARGE_MB=2000 tests the documented size
SMALL = [
    "--data_options.batch_size", "32", "--loop.max_steps", "5", "--loop.evaluate_every", "0",
    "--loop.accelerator", "cpu",
    "--encoder_options.width", "8", "--heads.hidden", "8", "--heads.embedding_size", "8",
]  # fmt: skip


def assert_same_batches(actual, expected):
    assert actual.view_shapes == expected.view_shapes
    for ours, theirs in zip(actual.train_dataloader(), expected.train_dataloader(), strict=True):
        assert torch.equal(ours["index"], theirs["index"])
        assert (ours["mask"] is None) == (theirs["mask"] is None)
        assert ours["mask"] is None or torch.equal(ours["mask"], theirs["mask"])
        assert ours["label"] is None or torch.equal(ours["label"], theirs["label"])
        for x, y in zip(ours["views"], theirs["views"]):
            torch.testing.assert_close(x, y)


def test_memory_mapped_rows_give_the_same_batches(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    a, b = random.normal(3, 2, (50, 6)).astype(np.float16), np.asfortranarray(random.normal(-1, 4, (50, 2, 3)))
    a[7] = np.nan
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "y.npy", np.arange(50) % 3)
    paths, labels = [tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "y.npy"
    expected = Arrays(paths, labels=labels, batch_size=8)
    monkeypatch.setattr(array_reader, "IN_MEMORY", 100)
    actual = Arrays(paths, labels=labels, batch_size=8)
    assert actual.datasets["train"].columns[0].rows._file is not None
    assert_same_batches(actual, expected)
    np.save(tmp_path / "b.npy", np.where(np.arange(300).reshape(50, 6) == 100, np.inf, b.reshape(50, 6)))
    with pytest.raises(ValueError, match=r"finite, or entirely NaN if missing, but row 16 of .* is neither"):
        Arrays(paths)
    np.save(tmp_path / "b.npy", np.where(np.arange(300).reshape(50, 6) == 100, 1e300, b.reshape(50, 6)))
    with pytest.raises(ValueError, match=r"finite, or entirely NaN if missing, but row 16 of .* is neither"):
        Arrays(paths)  # infinite in float32
    np.save(tmp_path / "b.npy", b[:40])
    with pytest.raises(ValueError, match=r"same number of rows .* got a 50, b 40"):
        Arrays(paths)


def test_a_parquet_file_per_view_is_read_some_rows_at_a_time(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    a = {"x": random.normal(size=50), "y": random.integers(0, 9, 50)}
    missing = [i == 7 for i in range(50)]
    b = {name: pa.array(random.normal(size=50), mask=np.array(missing)) for name in "uv"}
    for path, content in zip(paths, (a, b)):
        pa.parquet.write_table(pa.table(content), path)
    expected = Arrays(paths, batch_size=8)
    for module, name, value in ((array_reader, "IN_MEMORY", 100), (source, "BATCH", 7)):
        monkeypatch.setattr(module, name, value)
    actual = Arrays(paths, batch_size=8)
    assert hasattr(actual.datasets["train"], "columns")
    assert_same_batches(actual, expected)
    pa.parquet.write_table(pa.table({"x": ["a"] * 50, "y": np.arange(50)}), paths[0])
    with pytest.raises(ValueError, match=r"only numeric columns, but column 'x' of .* is not numeric"):
        Arrays(paths)


def test_a_table_read_a_few_cells_at_a_time_has_the_same_values(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    vectors = pa.array([None if i % 5 == 0 else random.normal(size=3).tolist() for i in range(60)])
    content = {"a": vectors, "text": [f"row {i} of sixty" for i in range(60)], "n": random.normal(size=60)}
    pa.parquet.write_table(pa.table(content), tmp_path / "t.parquet")
    expected = Objects(tmp_path / "t.parquet", batch_size=8)
    for module, name, value in ((source, "MAX_BYTES", 500), (source, "BUFFER", 64), (columns, "CHUNK", 40)):
        monkeypatch.setattr(module, name, value)
    assert_same_batches(Objects(tmp_path / "t.parquet", batch_size=8), expected)
    again = {name: pa.concat_arrays([pa.array(cells), pa.array(cells)[3:4]]) for name, cells in content.items()}
    pa.parquet.write_table(pa.table(again), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="got row 60 equal to row 3 in every view"):
        Objects(tmp_path / "t.parquet")


def test_an_evaluation_uses_evenly_spaced_rows(tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.arange(120.0).reshape(60, 2))
    data = Arrays([tmp_path / "a.npy", tmp_path / "b.npy"], standardize=False)
    whole, some = data.arrays("train"), data.arrays("train", most=10)
    assert torch.equal(some[0][0], whole[0][0][[int(i * len(whole[0][0]) / 10) for i in range(10)]])
    assert len(data.arrays("train", most=1000)[0][0]) == len(whole[0][0])


@pytest.mark.parametrize("name", data_sets.available())
def test_listed_options_are_the_arguments_of_the_data_set(name):
    assert DATA[name].options() == list(inspect.signature(data_sets.find(name)).parameters)


def _peak(data, folder, out):
    logs = folder / f"{out}-logs"
    logs.mkdir()
    return forked.peak(["train", *data, *SMALL, "--out", out], folder, logs)


def _arrays(folder, rows, width):
    """Two sparse files, which occupy no space on the disk."""
    folder.mkdir()
    for name in ("a", "b"):
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, width))
        array[:: rows // 32, :5] = np.random.default_rng(0).normal(size=(32, 5))
        del array
    return ["--views", folder / "a.npy", folder / "b.npy"]


def _table(folder, rows, width):
    """Two columns of vectors in one row group, which pyarrow by itself would read completely."""
    folder.mkdir()
    ends = pa.array(np.arange(rows + 1) * width, pa.int64())
    content = {}
    for name in ("a", "b"):
        numbers = np.random.default_rng(len(content)).standard_normal(rows * width, dtype=np.float32)
        content[name] = pa.LargeListArray.from_arrays(ends, pa.array(numbers))
    pa.parquet.write_table(
        pa.table(content), folder / "t.parquet", row_group_size=rows, use_dictionary=False, compression="none"
    )
    return ["--table", folder / "t.parquet"]


reads_peak_memory = pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="the peak memory of a process is read from /proc, which only Linux has",
)


@pytest.mark.slow
@reads_peak_memory
def test_a_run_on_400_megabytes_requires_a_fraction_of_that(tmp_path):
    """The limit is 600 MiB for 2 GB, so 120 MiB for 400 MB, beyond the memory of a run over 64 rows."""
    least = _peak(_arrays(tmp_path / "few", 64, 16384), tmp_path, "first")
    most = _peak(_arrays(tmp_path / "many", 3200, 16384), tmp_path, "second")
    assert most - least < 120, f"{least} MiB for 64 rows, {most} MiB for 3200"


@pytest.mark.slow
@reads_peak_memory
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("width", [16384, 512])
def test_a_run_on_a_large_parquet_file_requires_little_memory(tmp_path, width):
    """The limit is 600 MiB for 2 GB, including 128 MiB for views in memory."""
    rows = MEGABYTES * 10**6 // (2 * width * 4)
    least = _peak(_table(tmp_path / "few", 64, width), tmp_path, "first")
    most = _peak(_table(tmp_path / "many", rows, width), tmp_path, "second")
    size = (tmp_path / "many" / "t.parquet").stat().st_size
    print(f"{size / 1e6:.0f} MB of {rows} rows: {least} MiB for 64 rows, {most} MiB for all")
    assert size > 0.99e6 * MEGABYTES
    assert most - least < min(600, 250 + MEGABYTES / 6), f"{least} MiB for 64 rows, {most} MiB for {rows}"
