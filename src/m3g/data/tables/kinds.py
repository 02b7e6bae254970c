"""Inference of the kind of a column: numbers, categories, dates, text, vectors, images or sounds."""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from m3g import _checks
from m3g.data.images.reading import SUFFIXES as IMAGES

if TYPE_CHECKING:
    import pyarrow as pa

SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au")
MAX_CATEGORIES = 50
EMPTY = ("na", "n/a", "#n/a", "<na>", "nan", "null", "?")  # words for an empty cell among numbers and categories
EMPTY_TEXT = ("NA", "N/A", "#N/A", "<NA>", "NaN", "nan")  # the same for text and paths, in which "null" may be a word
MAX_CATEGORY_LENGTH = 40  # characters; a column with a longer cell is text
# First bytes of files, for images and sounds contained in the table.
_STARTS = {
    b"\xff\xd8\xff": "image", b"\x89PNG": "image", b"BM": "image", b"GIF8": "image",
    b"fLaC": "audio", b"OggS": "audio", b"ID3": "audio", b"FORM": "audio",
}  # fmt: skip
_NOUNS = {
    "image": "an image path", "audio": "a sound path", "vector": "a list of numbers", "number": "a number",
    "date": "a date",
}  # fmt: skip
# Names of columns that identify rows: id, ID, sample_id, sampleId, index, and those of unnamed indices in pandas.
_NO_NAME = r"unnamed: \d+(\.\d+)?|level_\d+|__index_level_\d+__"
_IDENTIFIER = re.compile(rf"(?i:(.*[_ .-])?(id|idx|index|uuid|guid)|{_NO_NAME})|.*[a-z]I[dD]")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")
_DATE_WITH_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_DATE_WITH_SLASHES = re.compile(r"\d{1,2}/\d{1,2}/(\d{4}|\d\d)( .*)?")  # day and month in either order
# Numbers with separators, a unit or a currency: 1,234.50, 00:15:30, 12 %, 3.20 €, $5, 21°C.
_NUMBER_WITH_UNIT = re.compile(r"[€$£]?\s*[+-]?\d[\d.,:' ]*(\s*[%€$£]|\s?[a-zA-Zµ°]{1,3})?")
# Codes of rows: one prefix and a number (K-1007, T31), or a UUID.
_CODE = re.compile(r"([^\d\s]{1,10})\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FIRST_DAY = datetime.datetime(1970, 1, 1)


class Guess:
    """Inference of the kind of a column from all of its cells, batch by batch.

    Attributes:
        name: name of the column.
        first: for each kind of cell, the first row of this kind, and its cell.
        count: number of cells that are not empty.
        distinct: distinct numbers and texts, up to one more than `MAX_CATEGORIES`.
        longest: number of characters of the longest number or text.
        numeric: whether all numbers and texts match `_NUMBER_WITH_UNIT`.

    Example:
        >>> guess = Guess("photo")
        >>> guess.update(0, ["a.jpg", None, "b.png"])
        >>> guess.kind()
        'image'
    """

    def __init__(self, name: str):
        self.name = name
        self.first: dict[str, tuple[int, str]] = {}
        self.count = 0
        self.distinct: set[str] = set()
        self.longest = 0
        self._start: int | None = None  # the number of row 0 in a column that numbers the rows
        self._numbers_rows = True
        self._named = _IDENTIFIER.fullmatch(name) is not None
        self._prefix: str | None = None  # of the codes in the column
        self._hashes: set[int] | None = set()  # of the cells; None once the column cannot identify the rows
        self._slashes = True  # whether all numbers and texts are dates with slashes
        self.numeric = True

    @property
    def open(self) -> bool:
        """Whether the column may still number or identify its rows."""
        return self._numbers_rows or self._hashes is not None

    def update(self, start: int, cells: Sequence[object]) -> None:
        """Inspect the cells of consecutive rows, the first of which has the number `start`."""
        for row, cell in enumerate(cells, start=start):
            if cell is None or cell == "" or (isinstance(cell, str) and cell.lower() in EMPTY):
                continue
            self.count += 1
            kind = kind_of_cell(cell)
            self.first.setdefault(kind, (row, str(cell)[:40]))
            if kind in ("number", "text"):
                text = str(cell)
                self.longest = max(self.longest, len(text))
                if len(self.distinct) <= MAX_CATEGORIES:
                    self.distinct.add(text)
                self._slashes = self._slashes and _DATE_WITH_SLASHES.fullmatch(text) is not None
                self.numeric = self.numeric and _NUMBER_WITH_UNIT.fullmatch(text) is not None
            if self.open:
                self._identify(row, cell, kind)

    def _identify(self, row: int, cell: object, kind: str) -> None:
        """Update whether the column may number or identify its rows."""
        number = _whole(cell) if kind == "number" else None
        if self._start is None and number is not None:
            self._start = number - row
        self._numbers_rows = self._numbers_rows and number is not None and number - row == self._start in (0, 1)
        if self._hashes is not None:
            text, before = str(cell), len(self._hashes)
            is_word = number is not None or (kind == "text" and not any(map(str.isspace, text)))
            self._hashes.add(hash(text))
            is_name = is_word if self._named else kind == "text" and self._is_code(text)
            self._hashes = self._hashes if is_name and len(self._hashes) > before else None

    def _is_code(self, text: str) -> bool:
        """Return whether a cell is a code with the same prefix as all codes before."""
        code = _CODE.fullmatch(text)
        if code is None:
            return False
        if self._prefix is None:
            self._prefix = code[1] or ""
        return self._prefix == (code[1] or "")

    def exclusion(self, num_rows: int) -> str | None:
        """Return why the column is not a feature (row numbers, identifiers, no cells, ambiguous dates), or None.

        Example:
            >>> for name, cells in [("sample_id", [4, 19, 7]), ("article", ["K-4", "K-19", "K-7"])]:
            ...     guess = Guess(name)
            ...     guess.update(0, cells)
            ...     print(guess.exclusion(3))
            identifies the rows
            identifies the rows
        """
        if self.count == 0:
            return "is empty"
        if self.count == num_rows > 2 and self._numbers_rows:
            return "numbers the rows"
        if self.count == num_rows > 2 and self._hashes is not None:
            return "identifies the rows"
        if "text" in self.first and self._slashes:
            return "has dates with an ambiguous order of day and month (use YYYY-MM-DD)"
        return None

    def kind(self) -> str:
        """Return the kind of a column that is not empty: image, audio, text, vector, number, date or category.

        Raise if the cells are of two kinds.
        """
        if len(self.first) > 1:
            (kind, (row, cell)), (other, (other_row, other_cell)) = sorted(
                self.first.items(), key=lambda item: item[1]
            )[:2]
            raise ValueError(
                f"column {self.name!r} must be of one kind, got {_NOUNS.get(kind, 'text')} in row {row} ({cell!r}) and "
                f"{_NOUNS.get(other, 'text')} in row {other_row} ({other_cell!r}): correct it (empty if missing), "
                f"or set the kind with --view.{self.name}.kind."
            )
        kind = next(iter(self.first))
        if kind != "text":
            return kind
        few = len(self.distinct) <= min(MAX_CATEGORIES, self.count // 2)
        return "category" if few and self.longest <= MAX_CATEGORY_LENGTH else "text"


def kind_of_cell(cell: object) -> str:
    """Return the kind of a cell: image, audio, vector, number, date or text.

    Example:
        >>> [kind_of_cell(cell) for cell in ("x/a.JPG", "b.wav", "[1, 2]", "1e-3", "a red car", 7, True)]
        ['image', 'audio', 'vector', 'number', 'text', 'number', 'number']
    """
    if isinstance(cell, numbers.Number):
        return "number"
    if isinstance(cell, (list, tuple)):
        return "vector"
    if isinstance(cell, datetime.date):  # or datetime
        return "date"
    if isinstance(cell, dict):  # a file in a data set saved by `datasets`
        cell = cell.get("bytes") or cell.get("path") or b""
    if isinstance(cell, bytes):
        if cell[:4] == b"RIFF":
            return "image" if cell[8:12] == b"WEBP" else "audio"
        return next((kind for start, kind in _STARTS.items() if cell.startswith(start)), "text")
    text = str(cell)
    suffix = PurePath(text).suffix.lower() if len(text) < 1000 and "\n" not in text else ""
    if suffix in IMAGES:
        return "image"
    if suffix in SOUNDS:
        return "audio"
    if text.startswith("[") and text.endswith("]"):
        return "vector"
    return "number" if as_number(text) is not None else "text" if as_date(text) is None else "date"


def as_number(cell: str) -> float | None:
    """Return the number in a cell; None if the cell is not a number."""
    if cell.isalpha() and len(cell) > 3:  # programs write inf and nan; "infinity" is text
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def as_date(cell: object) -> float | None:
    """Return the days from 1970-01-01 to a date in ISO format, with or without a time, or in the format 31.12.2024.

    None if the cell is not a date.

    Example:
        >>> as_date("1970-01-03"), as_date("1970-01-02 12:00"), as_date("3.1.1970"), as_date("March")
        (2.0, 1.5, 2.0, None)
    """
    if isinstance(cell, str):
        points = _DATE_WITH_POINTS.fullmatch(cell.strip())
        if points is not None:
            day, month, year = map(int, points.groups())
            cell = f"{year:04d}-{month:02d}-{day:02d}"
        if not _ISO_DATE.fullmatch(cell.strip()):
            return None
        try:
            cell = datetime.datetime.fromisoformat(cell.strip().replace("Z", "+00:00"))
        except ValueError:
            return None
    if not isinstance(cell, datetime.datetime):
        return float((cell - _FIRST_DAY.date()).days) if isinstance(cell, datetime.date) else None
    if cell.tzinfo is not None:
        cell = cell.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return (cell - _FIRST_DAY) / datetime.timedelta(days=1)


def _whole(cell: object) -> int | None:
    """Return the integer in a cell of kind number; None if the number is not an integer."""
    number = float(cell if isinstance(cell, (int, float)) else str(cell))
    return int(number) if number.is_integer() else None


def kind_of_type(kind: pa.DataType) -> str | None:
    """Return the kind implied by the pyarrow type of a column; None if its cells must be inspected."""
    types = _checks.extra("pyarrow", "train").types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        return "vector" if types.is_floating(inner) or types.is_integer(inner) else None
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return "number"
    return None
