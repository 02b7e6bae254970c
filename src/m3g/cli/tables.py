"""A table of results: its first rows on the screen, all of it in a .csv file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from m3g.cli.listing import print_table

FORMULA = ("=", "+", "-", "@", "\t", "\n")  # first characters of a cell that spreadsheets evaluate or skip


def check_out(name: str | None, *, suffix: str = ".csv") -> Path | None:
    """The file that `--out` names, refused before any work is done for it."""
    if name is None:
        return None
    out = Path(name)
    if out.suffix != suffix:
        article = "an" if suffix == ".npz" else "a"
        raise ValueError(f"--out must be the name of {article} {suffix} file, got {name!r}.")
    if out.exists():
        raise ValueError(f"--out must be a file that does not exist yet, but {out} does: delete it or choose another.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must be a file in an existing folder, but there is no folder {out.parent}.")
    return out


def show_table(head: Sequence[str], rows: Sequence[Sequence[Any]], *, most: int) -> None:
    print_table(list(head), list(rows[:most]))
    if len(rows) > most:
        print(f"... and {len(rows) - most} more")


def write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from m3g.training.runs.files import atomic

    with atomic(path, "w") as file:
        print_csv(file, head, rows)


def print_csv(file: IO[str], head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV in which no cell is a formula for a spreadsheet."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([escape(cell) for cell in row] for row in (head, *rows))


def escape(cell: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would evaluate; numbers stay as they are.

    Example:
        >>> [escape(cell) for cell in ("=1+2", "@SUM(A1)", "-1.5e3", "-x", -2, "a=b")]
        ["'=1+2", "'@SUM(A1)", '-1.5e3', "'-x", -2, 'a=b']
    """
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")  # the writer quotes only its own end of a line
    if not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return f"'{cell}" if cell[0].isspace() else cell
