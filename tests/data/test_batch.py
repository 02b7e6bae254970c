"""Batches of rows in memory, which are read without Lightning."""

import subprocess
import sys

import torch

from m3g.data.batch import TensorRows
from m3g.data.sampling import Draw


def test_a_batch_has_the_requested_rows():
    views = [torch.arange(12.0).reshape(4, 3), torch.arange(8.0).reshape(4, 2)]
    mask = torch.tensor([[True, True, False, True], [True] * 4])
    rows = TensorRows(views, mask, torch.tensor([5, 6, 7, 8]), torch.tensor([10, 11, 12, 13]))
    assert len(rows) == 4
    batch = rows.__getitems__([2, 0])
    assert [view.tolist() for view in batch["views"]] == [[[6, 7, 8], [0, 1, 2]], [[4, 5], [0, 1]]]
    assert batch["mask"].tolist() == [[False, True], [True, True]]
    assert batch["label"].tolist() == [7, 5]
    assert batch["index"].tolist() == [12, 10]
    drawn = rows.__getitems__([Draw(0, 0, 2), Draw(0, 1, 0)])
    assert torch.equal(drawn["views"][0], batch["views"][0])


def test_networks_are_loaded_without_lightning():
    program = "import sys, m3g; m3g.load; import m3g.training.runs.collection; sys.exit('lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
