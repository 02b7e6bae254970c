"""Cells of a CSV file are not formulas, and are read back as they were."""

import csv
import io

import pytest

from m3g._csv import escape, print_csv, unescape


@pytest.mark.parametrize("cell", ["=1+2", "+x", "-x", "@a", "\tx", "plain", "'quoted'", "-1.5"])
def test_a_cell_is_read_back_as_it_was(cell):
    file = io.StringIO()
    print_csv(file, ["name"], [[cell]])
    (written,) = list(csv.reader(io.StringIO(file.getvalue())))[1]
    assert written == escape(cell)
    assert written == cell or not written.startswith(("=", "+", "-", "@", "\t"))
    assert unescape(written) == cell
