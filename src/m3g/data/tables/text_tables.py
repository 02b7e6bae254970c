"""Tables that are read as a whole: delimited text, JSON and workbooks. Cells are text, except in JSON."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from m3g import _checks
from m3g.data.storage import delimited, limits
from m3g.data.tables.kinds import EMPTY

if TYPE_CHECKING:
    import pyarrow as pa

# Numbers with a decimal comma, possibly with points between thousands; NA and similar words are empty cells.
_EMPTY = "|".join(map(re.escape, EMPTY))
_DECIMAL_COMMA = rf"^\s*([+-]?(\d+|\d{{1,3}}(\.\d{{3}})+)?(,\d+)?([eE][+-]?\d+)?|(?i:{_EMPTY}))\s*$"
MAX_COMPRESSION_RATIO = 200  # size of a workbook's content divided by the size of its file
SMALL_WORKBOOK = 2**26  # bytes of content up to which the ratio is not checked


def read_csv(file: Path) -> tuple[pa.Table, list[str]]:
    """Return a table of text cells, and notes on inferred properties."""
    arrow, reader = _checks.extra("pyarrow", "train"), _checks.extra("pyarrow.csv", "train")
    separator = None
    try:
        with open(file, "rb") as content:
            separator, cells = delimited.read_names(content, file.suffix)
            names = delimited.column_names(cells)
            table = reader.read_csv(
                content,
                parse_options=reader.ParseOptions(delimiter=separator, newlines_in_values=True),
                convert_options=reader.ConvertOptions(
                    column_types=dict.fromkeys(cells, arrow.string()),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                    null_values=[""],
                ),
            ).rename_columns(names)
    except (UnicodeError, arrow.ArrowInvalid):
        delimited.check_encoding(file, separator or ",")
        delimited.check_widths(file, separator or ",")
        raise
    notes = delimited.notes_on_names(names)
    if separator == ",":
        return table, notes
    notes.append(f"columns are separated by {delimited.SEPARATORS[separator]}")
    return _with_decimal_points(table, notes), notes


def _with_decimal_points(table: pa.Table, notes: list[str]) -> pa.Table:
    """Replace decimal commas with points in columns whose cells are all numbers."""
    compute = _checks.extra("pyarrow.compute", "train")
    replaced = []
    for i, name in enumerate(table.schema.names):
        column = table.column(i)
        commas = compute.any(compute.match_substring(column, ",")).as_py()
        if commas and compute.all(compute.match_substring_regex(column, _DECIMAL_COMMA)).as_py():
            plain = compute.replace_substring(compute.replace_substring(column, ".", ""), ",", ".")
            table = table.set_column(i, name, plain)
            replaced.append(name)
    if replaced:
        notes.append(f"decimal commas are read as points in {_list(replaced)}")
    return table


def _list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def read_jsonl(file: Path) -> pa.Table:
    """Read a file with one row per line, a JSON mapping from column names to cells."""
    try:
        with open(file, encoding="utf-8-sig") as lines:
            return _table_from_rows(map(limits.parse_json, filter(str.strip, lines)), file.stat().st_size)
    except UnicodeError:
        delimited.check_encoding(file)
        raise


def read_json(file: Path) -> pa.Table:
    """Read a list of rows, or a mapping from names to columns or from numbers to rows, as pandas writes them.

    A mapping with one entry may contain the list of rows. A file with one row per line is read as JSON lines.
    """
    size = file.stat().st_size
    limits.check_memory(f"the content of {str(file)!r}", size)
    try:
        content = limits.parse_json(file.read_text(encoding="utf-8-sig"))
    except UnicodeError:
        delimited.check_encoding(file)
        raise
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return read_jsonl(file)
        raise
    rows = content.get("data") if isinstance(content, Mapping) else None
    if isinstance(rows, list):  # pandas' orient split and table, or a column named data
        names = content.get("columns")
        if names is not None:
            content = [dict(zip(names, row)) for row in rows]
        elif all(isinstance(row, Mapping) for row in rows):
            content = rows
    if isinstance(content, Mapping) and len(content) == 1:
        (rows,) = content.values()
        content = rows if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows) else content
    if isinstance(content, Mapping):
        content = list(content.values()) if _has_rows_by_number(content) else _rows_from_columns(content)
    if not isinstance(content, list):
        raise OSError("it is neither a list of rows nor a mapping of columns")
    return _table_from_rows(content, size)


def _has_rows_by_number(content: Mapping[str, object]) -> bool:
    """Return whether a mapping contains numbered rows (pandas' orient index) rather than columns."""
    rows = [row for row in content.values() if isinstance(row, Mapping)]
    numbered = len(rows) == len(content) and all(map(str.isdecimal, content))
    return numbered and not all(name.isdecimal() for row in rows for name in row)


def _rows_from_columns(content: Mapping[str, object]) -> list[dict[str, object]]:
    """Convert columns to rows; a column is a list, or a mapping from row names to cells."""
    columns = {
        name: dict(enumerate(cells)) if isinstance(cells, list) else cells
        for name, cells in content.items()
        if isinstance(cells, (list, Mapping))
    }
    if len(columns) < len(content) or len({tuple(cells) for cells in columns.values()}) != 1:
        raise OSError("it is a mapping, but its values are not columns with the same rows")
    return [{name: cells[row] for name, cells in columns.items()} for row in next(iter(columns.values()))]


def _table_from_rows(entries: Iterable[object], size: int) -> pa.Table:
    """Return a table; each entry is a row, a mapping from column names to cells. `size` is the file size in bytes."""
    columns: dict[str, dict[int, object]] = {}  # cells by row, because rows may lack most columns
    number = 0
    for entry in entries:
        if not isinstance(entry, dict):
            raise OSError(f"row {number} is not a mapping of names to values")
        for name, value in entry.items():
            columns.setdefault(name, {})[number] = value
        limits.check_columns(len(columns))
        number += 1
    limits.check_cells(number, len(columns), size)
    rows = range(number)
    arrow = _checks.extra("pyarrow", "train")
    return arrow.table({name: _typed(name, [cells.get(row) for row in rows]) for name, cells in columns.items()})


def _typed(name: str, values: list[object]) -> pa.Array:
    """Return a column as an array; raise if its cells are of different kinds."""
    arrow = _checks.extra("pyarrow", "train")
    seen: dict[str, int] = {}
    nouns = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    for row, value in enumerate(values):
        if value is not None:
            seen.setdefault(nouns.get(type(value), "another value"), row)
    if len(seen) > 1:
        (kind, row), (other, other_row) = list(seen.items())[:2]
        raise OSError(f"column {name!r} must be of one kind, got {kind} in row {row} and {other} in row {other_row}")
    return arrow.array(values)


def read_workbook(file: Path) -> tuple[pa.Table, list[str]]:
    """Return the first sheet of an `.xlsx` file as a table of text cells, and notes on it.

    The first row contains the column names, and formulas yield their stored values. Declared sizes are ignored, because
    a sheet may declare billions of cells.
    """
    arrow, openpyxl = _checks.extra("pyarrow", "train"), _checks.extra("openpyxl", "xlsx")
    with open(file, "rb") as content:
        size = os.fstat(content.fileno()).st_size
        _check_workbook(content, size)
        try:
            book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        except (KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile, SyntaxError) as error:
            raise OSError(f"damaged, or not a workbook: {error}") from error
        try:
            sheet = book.worksheets[0]
            sheet.reset_dimensions()
            rows = sheet.iter_rows(values_only=True)
            names = delimited.column_names(_until_empty(next(rows, ())))
            limits.check_columns(len(names))
            cells = list(_text_rows(rows, len(names), size))
            number = len(book.sheetnames)
            notes = [f"only sheet {sheet.title!r}, the first of {number}, is read"] if number > 1 else []
            notes += delimited.notes_on_names(names)
        except (KeyError, IndexError, TypeError, zipfile.BadZipFile, SyntaxError) as error:
            raise OSError(f"damaged: {error}") from error
        finally:
            book.close()
    columns = zip(*cells) if cells else itertools.repeat((), len(names))
    return arrow.table({name: arrow.array(column, arrow.string()) for name, column in zip(names, columns)}), notes


def _check_workbook(file: BufferedReader, size: int) -> None:
    """Raise if the uncompressed content of a workbook is far larger than its file, or does not fit into memory."""
    try:
        with zipfile.ZipFile(file) as archive:
            content = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise OSError("damaged, or not a workbook") from error
    if content > max(SMALL_WORKBOOK, MAX_COMPRESSION_RATIO * size):
        raise OSError(
            f"its content of {content} bytes is more than {MAX_COMPRESSION_RATIO} times its file size: save it as .csv"
        )
    limits.check_memory(f"the content of {str(file.name)!r}", 4 * content)


def _until_empty(row: Iterable[object]) -> list[object]:
    """Return the cells of a row without empty cells at the end."""
    cells = list(row)
    while cells and cells[-1] in (None, ""):
        cells.pop()
    return cells


def _text_rows(rows: Iterable[Iterable[object]], width: int, size: int) -> Iterator[list[str | None]]:
    """Yield rows of `width` cells as text, without empty rows at the end; `size` is the file size in bytes."""
    empty = 0
    for number, row in enumerate(rows):
        cells = _until_empty(row)
        if len(cells) > width:
            raise OSError(
                f"row {number} has {len(cells)} cells, but the first row has {width}: name every column, or remove "
                "rows above the names"
            )
        if not cells:
            empty += 1
            continue
        limits.check_cells(number + 1, width, size)
        yield from itertools.repeat([None] * width, empty)
        empty = 0
        yield [_text(cell) for cell in cells] + [None] * (width - len(cells))


def _text(cell: object) -> str | None:
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        cell = cell.date()
    return None if cell in (None, "") else str(cell)
