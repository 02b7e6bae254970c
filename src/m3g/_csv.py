"""CSV output whose cells a spreadsheet does not evaluate as formulas."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import IO

# First characters of formulas, and whitespace that spreadsheets skip before them.
FORMULA = ("=", "+", "-", "@", "\t", "\n")


def print_csv(file: IO[str], head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as CSV, with an apostrophe before cells that a spreadsheet would evaluate."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([escape(cell) for cell in row] for row in (head, *rows))


def escape(cell: object) -> object:
    """Return a cell with an apostrophe before text that a spreadsheet would evaluate, and with Unix line breaks.

    Numbers get no apostrophe unless they have leading space.

    Example:
        >>> [escape(cell) for cell in ("=1+2", "@SUM(A1)", "-1.5e3", "-x", -2, "a=b")]
        ["'=1+2", "'@SUM(A1)", '-1.5e3', "'-x", -2, 'a=b']
    """
    if not isinstance(cell, str):
        return cell
    # Of line breaks, some versions of `csv.writer` quote only their own line terminator.
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    if not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return f"'{cell}" if cell[0].isspace() else cell


def unescape(cell: str) -> str:
    """Remove the apostrophe that `escape` puts before text.

    Example:
        >>> [unescape(cell) for cell in ("'=1+2", "a=b", "'quoted'")]
        ['=1+2', 'a=b', "'quoted'"]
    """
    return cell[1:] if cell.startswith(tuple(f"'{first}" for first in FORMULA)) else cell
