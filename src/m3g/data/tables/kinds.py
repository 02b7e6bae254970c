"""What the cells of a column are: numbers, categories, text, vectors, images or sounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from m3g import _checks
from m3g.data.images.folders import SUFFIXES as IMAGES

SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff", ".au")
MOST_CATEGORIES = 50
NOTHING = ("na", "n/a", "nan", "null")  # words for an empty cell among numbers and categories
LONGEST_CATEGORY = 40  # characters; a longer entry is text
# what files begin with, for images and sounds that stand in the table itself
_STARTS = {
    b"\xff\xd8\xff": "image", b"\x89PNG": "image", b"BM": "image", b"GIF8": "image",
    b"fLaC": "audio", b"OggS": "audio", b"ID3": "audio", b"FORM": "audio",
}  # fmt: skip
_NOUNS = {"image": "an image path", "audio": "a sound path", "vector": "a list of numbers", "number": "a number"}


class Guess:
    """The kind of a column, from all of its cells, batch by batch.

    Example:
        >>> guess = Guess("photo")
        >>> guess.update(0, ["a.jpg", None, "b.png"])
        >>> guess.kind()
        'image'
    """

    def __init__(self, name: str):
        self.name = name
        self.first: dict[str, tuple[int, str]] = {}  # per kind of cell, the first row that has it, and the cell
        self.count = 0
        self.distinct: set[str] = set()
        self.longest = 0

    def update(self, start: int, cells: Sequence[Any]) -> None:
        for row, cell in enumerate(cells, start=start):
            if cell is None or cell == "" or (isinstance(cell, str) and cell.lower() in NOTHING):
                continue
            self.count += 1
            kind = kind_of_cell(cell)
            self.first.setdefault(kind, (row, str(cell)[:40]))
            if kind in ("number", "text"):
                self.longest = max(self.longest, len(str(cell)))
                if len(self.distinct) <= MOST_CATEGORIES:
                    self.distinct.add(str(cell))

    def kind(self) -> str | None:
        """image, audio, text, vector, number or category; None for an empty column; two kinds are refused."""
        if len(self.first) > 1:
            (one, (row, cell)), (other, (later, word)) = sorted(self.first.items(), key=lambda item: item[1])[:2]
            raise ValueError(
                f"column {self.name!r} must be of one kind, got {_NOUNS.get(one, 'text')} in row {row} ({cell!r}) and "
                f"{_NOUNS.get(other, 'text')} in row {later} ({word!r}): correct it, or say what it is with "
                f"--view.{self.name}.kind."
            )
        if not self.first:
            return None
        kind = next(iter(self.first))
        if kind != "text":
            return kind
        few = len(self.distinct) <= min(MOST_CATEGORIES, self.count // 2)
        return "category" if few and self.longest <= LONGEST_CATEGORY else "text"


def kind_of_cell(cell: Any) -> str:
    """image, audio, vector, number or text.

    Example:
        >>> [kind_of_cell(cell) for cell in ("x/a.JPG", "b.wav", "[1, 2]", "1e-3", "a red car", 7, True)]
        ['image', 'audio', 'vector', 'number', 'text', 'number', 'number']
    """
    if isinstance(cell, (bool, int, float)):
        return "number"
    if isinstance(cell, (list, tuple)):
        return "vector"
    if isinstance(cell, dict):  # how datasets stores files
        cell = cell.get("bytes") or cell.get("path") or b""
    if isinstance(cell, bytes):
        if cell[:4] == b"RIFF":
            return "image" if cell[8:12] == b"WEBP" else "audio"
        return next((kind for start, kind in _STARTS.items() if cell.startswith(start)), "text")
    suffix = PurePath(cell).suffix.lower() if len(cell) < 1000 and "\n" not in cell else ""
    if suffix in IMAGES:
        return "image"
    if suffix in SOUNDS:
        return "audio"
    if cell.startswith("[") and cell.endswith("]"):
        return "vector"
    return "number" if as_number(cell) is not None else "text"


def as_number(cell: str) -> float | None:
    """The number that a cell holds; None where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return None


def kind_of_type(kind: Any) -> str | None:
    """What pyarrow's type of a column says; None where one has to look at its cells."""
    types = _checks.extra("pyarrow", "train").types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        return "vector" if types.is_floating(inner) or types.is_integer(inner) else None
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return "number"
    return None
