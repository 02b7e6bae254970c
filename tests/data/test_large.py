"""Files larger than memory should hold: the same batches, and little memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from m3g.data import Arrays
from m3g.data.objects import array_reader

PEAK = """
import resource, sys
from m3g.cli import main
code = main(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(code)
"""
SMALL = [
    "--data_options.batch_size", "32", "--loop.max_steps", "5", "--loop.evaluate_every", "0",
    "--loop.accelerator", "cpu",
    "--encoder_options.width", "8", "--heads.hidden", "8", "--heads.embedding_size", "8",
]  # fmt: skip


def test_rows_that_stay_in_their_file_give_the_same_batches(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    a, b = random.normal(3, 2, (50, 6)).astype(np.float16), np.asfortranarray(random.normal(-1, 4, (50, 2, 3)))
    a[7] = np.nan
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
    np.save(tmp_path / "y.npy", np.arange(50) % 3)
    paths, labels = [tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "y.npy"
    expected = Arrays(paths, labels=labels, batch_size=8)
    monkeypatch.setattr(array_reader, "IN_MEMORY", 100)
    found = Arrays(paths, labels=labels, batch_size=8)
    assert found.datasets["train"].columns[0].rows._file is not None
    assert found.view_shapes == expected.view_shapes
    for ours, theirs in zip(found.train_dataloader(), expected.train_dataloader(), strict=True):
        assert torch.equal(ours["index"], theirs["index"])
        assert torch.equal(ours["mask"], theirs["mask"])
        assert torch.equal(ours["label"], theirs["label"])
        for x, y in zip(ours["views"], theirs["views"]):
            torch.testing.assert_close(x, y)
    np.save(tmp_path / "b.npy", np.where(np.arange(300).reshape(50, 6) == 100, np.inf, b.reshape(50, 6)))
    with pytest.raises(ValueError, match="finite numbers, or only NaN for an absent row, got another in row 16"):
        Arrays(paths)
    np.save(tmp_path / "b.npy", b[:40])
    with pytest.raises(ValueError, match=r"same number of rows .* got a 50, b 40"):
        Arrays(paths)


def _peak(data, out):
    """MiB that a run takes at most."""
    command = [sys.executable, "-c", PEAK, "train", *map(str, data), *SMALL, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(next(line for line in done.stdout.splitlines() if line.startswith("peak")).split()[1])


def _arrays(folder, rows, width):
    """Two files with holes, which take no space on the disk."""
    folder.mkdir()
    for name in ("a", "b"):
        array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (rows, width))
        array[:: rows // 32, :5] = np.random.default_rng(0).normal(size=(32, 5))
        del array
    return ["--views", folder / "a.npy", folder / "b.npy"]


@pytest.mark.slow
def test_a_run_over_400_megabytes_takes_a_fraction_of_that(tmp_path):
    """600 MiB are allowed for 2 GB: so 120 for 400 MB, beyond the libraries and the network.

    These are what a run over 64 rows of the same width takes.
    """
    least = _peak(_arrays(tmp_path / "few", 64, 16384), tmp_path / "first")
    most = _peak(_arrays(tmp_path / "many", 3200, 16384), tmp_path / "second")
    assert most - least < 120, f"{least} MiB for 64 rows, {most} MiB for 3200"
