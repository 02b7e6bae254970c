"""Cells of a CSV file are not formulas, and are read back as they were."""

import csv
import io

import pytest
import torch

from m3g._csv import escape, print_csv, unescape
from m3g.training.mismatch.entries import write_entries
from m3g.training.mismatch.reliability import Mismatch


@pytest.mark.parametrize("cell", ["=1+2", "+x", "-x", "@a", "\tx", "plain", "'quoted'", "-1.5"])
def test_a_cell_is_read_back_as_it_was(cell):
    file = io.StringIO()
    print_csv(file, ["name"], [[cell]])
    (written,) = list(csv.reader(io.StringIO(file.getvalue())))[1]
    assert written == escape(cell)
    assert written == cell or not written.startswith(("=", "+", "-", "@", "\t"))
    assert unescape(written) == cell


def test_names_of_views_in_mismatch_csv_are_not_formulas(tmp_path):
    watch = Mismatch(3, 4)
    watch.visits.fill_(1)
    write_entries(tmp_path / "mismatch.csv", watch, ["=cmd()", "b", "c"], torch.arange(4))
    cells = [line.split(",")[1] for line in (tmp_path / "mismatch.csv").read_text().splitlines()]
    assert "'=cmd()" in cells
    assert "=cmd()" not in cells
