"""Names in mismatch.csv."""

import torch

from m3g.training.mismatch.entries import write_entries
from m3g.training.mismatch.reliability import Mismatch


def test_names_of_views_in_mismatch_csv_are_not_formulas(tmp_path):
    mismatch = Mismatch(3, 4)
    mismatch.visits.fill_(1)
    write_entries(tmp_path / "mismatch.csv", mismatch, ["=cmd()", "b", "c"], torch.arange(4))
    cells = [line.split(",")[1] for line in (tmp_path / "mismatch.csv").read_text().splitlines()]
    assert "'=cmd()" in cells
    assert "=cmd()" not in cells
