"""Delimited text files: their separator, their column names, and rows that are not UTF-8."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from m3g.data.storage import limits

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# The separator is determined by the first line and at most SAMPLED_LINES others, each of at most SAMPLED_LENGTH
# characters.
SAMPLED_LINES, SAMPLED_LENGTH = 20, 2**16


def read_names(content: BufferedReader, suffix: str) -> tuple[str, list[str]]:
    """Return the separator and the cells of the first line of an open file, which is rewound."""
    lines = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
    try:
        first = lines.readline(limits.MAX_HEADER_LENGTH)
        limits.check_columns(max(map(first.count, SEPARATORS)) + 1)
        sample = [first, *itertools.takewhile(bool, (lines.readline(SAMPLED_LENGTH) for _ in range(SAMPLED_LINES)))]
        tabs = suffix.lower() == ".tsv" and ("\t" in first or not any(map(first.count, SEPARATORS)))
        separator = "\t" if tabs else find_separator(sample)
        lines.seek(0)
        return separator, next(csv.reader(lines, delimiter=separator), [])
    finally:
        lines.detach()
        content.seek(0)


def find_separator(lines: Sequence[str]) -> str:
    r"""Return the separator that splits all lines into the same number of cells, two or more.

    If several separators do, or none does, return the one with the most cells in the first line.

    Example:
        >>> find_separator(["size;note\n", "1,5;a, b\n"]), find_separator(["a\tb\n"]), find_separator(["a,b\n"])
        (';', '\t', ',')
    """

    def quality(separator: str) -> tuple[bool, int]:
        try:
            sizes = [len(cells) for cells in csv.reader(lines, delimiter=separator)]
        except csv.Error:  # a cell of more than 131 072 characters
            sizes = [len(next(csv.reader(lines[:1], delimiter=separator), [])), 0]
        same = all(size == sizes[0] for size in (sizes[:-1] if len(sizes) > 2 else sizes))  # the last may be truncated
        return same and sizes[0] > 1, sizes[0] if sizes else 0

    return max(SEPARATORS, key=quality) if lines and lines[0] else ","


def column_names(cells: Sequence[object]) -> list[str]:
    """Return one name per column, `Unnamed: i` for an empty cell i as in pandas; raise for duplicate names or none.

    Example:
        >>> column_names(["", "age", " size"])
        ['Unnamed: 0', 'age', 'size']
    """
    stripped = ["" if cell is None else str(cell).strip() for cell in cells]
    names = [cell or f"Unnamed: {i}" for i, cell in enumerate(stripped)]
    if len(set(names)) < len(names) or not any(stripped):
        got = f"{Counter(names).most_common(1)[0][0]!r} twice" if any(stripped) else "no names"
        raise csv.Error(f"its first line must have a different name for every column, got {got}")
    return names


def notes_on_names(names: Sequence[str]) -> list[str]:
    """Return a note if the first line may be a row of data because some of its names are numbers.

    The numbers 0, 1, 2, … or 1, 2, 3, …, and three or more increasing numbers, are accepted as names.

    Example:
        >>> notes_on_names(["name", "0", "1"]), notes_on_names(["350.5", "351", "351.5"])
        ([], [])
        >>> len(notes_on_names(["a red car", "1.5", "0.2"]))
        1
    """
    numbers = []
    for name in names:
        with contextlib.suppress(ValueError):
            numbers.append(float(name))
    counted = numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))
    if counted or (len(numbers) > 2 and all(map(operator.lt, numbers, numbers[1:]))):
        return []
    return [f"the first line is read as column names ({', '.join(names[:3])}): if it is data, insert a line of names"]


def check_widths(file: Path, separator: str) -> None:
    """Raise an `OSError` that names the first row whose number of cells differs from that of the first line."""
    with open(file, newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines, delimiter=separator)
        width = len(next(rows, []))
        for number, row in enumerate(filter(None, rows)):
            if len(row) != width:
                raise OSError(
                    f"row {number} has {len(row)} cells, but the first line has {width}: correct the row, name "
                    "every column, or remove lines above the names"
                )


def check_encoding(file: Path, separator: str | None = None) -> None:
    """Raise an `OSError` that names the first row that is not UTF-8.

    With a separator, a row is a record, which may span several lines; without one, a row is a line.
    """

    def decoded() -> Iterator[str]:
        with open(file, "rb") as lines:
            for line in lines:
                yield line.decode("utf-8")

    with open(file, "rb") as content:
        is_utf16 = content.read(2) in (b"\xff\xfe", b"\xfe\xff")
    rows, number = decoded() if separator is None else csv.reader(decoded(), delimiter=separator), 0
    try:
        for _ in rows:
            number += 1
    except UnicodeDecodeError as error:
        row = number - (separator is not None)  # the first record contains the names
        where = "its first line" if row < 0 else f"row {row}"
        kind = "UTF-16" if is_utf16 else "WINDOWS-1252"
        byte = "" if is_utf16 else f" (byte 0x{error.object[error.start]:02x})"
        raise OSError(
            f"{where} is not UTF-8{byte}, probably {'UTF-16' if is_utf16 else 'Latin-1'}: save the file as UTF-8, for "
            f"example with iconv -f {kind} -t UTF-8 {file.name} > utf8{file.suffix}"
        ) from None
    except csv.Error:
        return
