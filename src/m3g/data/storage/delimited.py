"""Delimited text files: their separator, their column names, and rows that are not UTF-8."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from m3g.data.storage import limits

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLED_LINES, SAMPLED_LENGTH = 20, 2**16  # number of lines that determine the separator, and characters read of each


def read_names(file: Path) -> tuple[str, list[str]]:
    """Return the separator of a file and the entries of its first line."""
    with open(file, newline="", encoding="utf-8-sig") as lines:
        first = lines.readline(limits.MAX_HEADER_LENGTH)
        limits.check_columns(max(map(first.count, SEPARATORS)) + 1)
        sample = [first, *itertools.takewhile(bool, (lines.readline(SAMPLED_LENGTH) for _ in range(SAMPLED_LINES)))]
    separator = "\t" if file.suffix == ".tsv" else find_separator(sample)
    with open(file, newline="", encoding="utf-8-sig") as lines:
        return separator, next(csv.reader(lines, delimiter=separator), [])


def find_separator(lines: Sequence[str]) -> str:
    r"""Return the separator that splits all lines into the same number of entries.

    If several or none do, return the one with the most entries in the first line.

    Example:
        >>> find_separator(["size;note\n", "1,5;a, b\n"]), find_separator(["a\tb\n"]), find_separator(["a,b\n"])
        (';', '\t', ',')
    """

    def quality(separator: str) -> tuple[bool, int]:
        try:
            sizes = [len(entries) for entries in csv.reader(lines, delimiter=separator)]
        except csv.Error:  # an entry of more than 131 072 characters
            sizes = [len(next(csv.reader(lines[:1], delimiter=separator), [])), 0]
        same = all(size == sizes[0] for size in (sizes[:-1] if len(sizes) > 2 else sizes))  # the last may be truncated
        return same and sizes[0] > 1, sizes[0] if sizes else 0

    return max(SEPARATORS, key=quality) if lines and lines[0] else ","


def column_names(entries: Sequence[object]) -> list[str]:
    """Return one name per column, `Unnamed: 0` for an empty name as in pandas; reject duplicate names.

    Example:
        >>> column_names(["", "age"])
        ['Unnamed: 0', 'age']
    """
    names = [f"Unnamed: {i}" if entry in (None, "") else str(entry) for i, entry in enumerate(entries)]
    if not any(entry not in (None, "") for entry in entries) or len(set(names)) < len(names):
        raise csv.Error("its first line must have a different name for every column")
    return names


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
