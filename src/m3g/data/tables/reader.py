"""Readers, which convert the cells of a table to the tensors of a view: base class, and readers of text and vectors."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g._options import Processor
from m3g.data.storage.limits import parse_json
from m3g.data.storage.moved import Folders
from m3g.data.tables.kinds import EMPTY_TEXT

if TYPE_CHECKING:
    import pyarrow as pa
    from tokenizers import Tokenizer

MAX_TEXT_LENGTH = 512  # maximum length by default, in bytes or tokens
# Kind, columns and fitted options of a reader, as plain values that are stored with the network; the reader of new data
# is constructed from them.
Recipe: TypeAlias = dict[str, Any]


class Cells(NamedTuple):
    """Consecutive rows of a table: number of the first row, one array per column, and the folders of files."""

    start: int
    columns: Mapping[str, pa.Array]
    folders: Folders


class Reader(ABC):
    """Reader of one view of a table.

    `learn` and `finish` fit it, `encode` converts cells to the values that are stored, and `tensor` converts stored
    values to network inputs.

    Args:
        name: name of the view.
        columns: its columns in the table.
        processor: preprocessing of a pretrained model.
        given: options of the view by name, set by the user or by an earlier fit.
    """

    kind: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()  # settings of a view of this kind
    processed: ClassVar[tuple[str, ...]] = ()  # fields of a `Processor` that apply to this kind
    dtype: torch.dtype = torch.float32  # of the network inputs

    def __init__(self, name: str, columns: Sequence[str], *, processor: Processor | None = None, **given: float):
        self.name, self.columns = name, list(columns)
        used = {field: value for field, value in (processor or {}).items() if field in self.processed}
        self.processor = cast("Processor", used)
        for option, value in given.items():
            if option == "seconds":
                _checks.positive(f"view.{name}.{option}", value)
            else:
                given[option] = _checks.positive_int(f"view.{name}.{option}", value)  # type: ignore[arg-type]
        self.given = given  # options set by the user, completed by the fit
        self.notes: list[str] = []  # one sentence per property of the view that is reported to the user
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027 - not every kind has further attributes
        """Validate the options and set further attributes."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    def learn(self, cells: Cells, train: np.ndarray) -> None:  # noqa: B027 - not every kind is fitted
        """Update the fit with n rows; `train`, bool (n,), marks the training rows."""

    def finish(self) -> None:  # noqa: B027
        """Complete the fit after the last rows."""

    @abstractmethod
    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Return the values to store for the n rows, and which rows have the view, bool (n,)."""

    def damaged(self, stored: np.ndarray) -> np.ndarray:
        """Return which of the n present rows cannot be read, bool (n,)."""
        return np.zeros(len(stored), dtype=bool)

    def tensor(self, stored: np.ndarray) -> Tensor:
        return torch.from_numpy(stored)

    def recipe(self) -> Recipe:
        processor = {"processor": self.processor} if self.processor else {}
        return {"kind": self.kind, "columns": self.columns, **self.given, **processor}

    def unknown(self, cells: Cells) -> list[object]:
        """Return the values of the cells that are encoded as zeros because the training rows have no such value."""
        return []

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the recipe, which are stored with the weights of the network."""
        return {}

    def _cell_error(self, row: int, what: str, got: str, advice: str) -> ValueError:
        return ValueError(f"view {self.name!r} must be {what}, got {got} in row {row}: {advice}.")

    @property
    def _column(self) -> str:
        return self.columns[0]


class TextReader(Reader):
    """Reader of text as UTF-8 bytes, or as tokens of a pretrained model.

    Shorter texts are padded, bytes with zeros and tokens with the model's padding token; longer texts are truncated.
    The default length covers about 99 % of the texts, up to 512 bytes or tokens.
    """

    kind = "text"
    options = ("length",)
    processed: ClassVar[tuple[str, ...]] = ("model", "tokenizer", "pad", "longest")

    def _prepare(self) -> None:
        if self.processor and "tokenizer" not in self.processor:
            raise ValueError(
                f"view.{self.name}.model must have a tokenizer next to its weights, got none in "
                f"{self.processor['model']!r}: choose another model or, offline, download its tokenizer first."
            )
        self.dtype = torch.int32 if self.processor else torch.uint8
        self._longest = min(MAX_TEXT_LENGTH, self.processor.get("longest", MAX_TEXT_LENGTH))
        self._counts = np.zeros(self._longest + 1, dtype=np.int64)  # number of texts by length
        self._tokenizer: Tokenizer | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.given["length"]),)

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        if "length" not in self.given:
            texts = [text for text in self._texts(cells) if text is not None]
            lengths = [min(len(self._codes(text)), self._longest) for text in texts]
            self._counts += np.bincount(np.array(lengths, dtype=np.int64), minlength=len(self._counts))

    def finish(self) -> None:
        if "length" not in self.given:
            ends = self._counts.cumsum()
            position = 0.99 * max(ends[-1] - 1, 0)  # of the 99 % quantile among the sorted lengths
            low, high = np.searchsorted(ends, [math.floor(position), math.ceil(position)], side="right")
            quantile = int(low + (position - math.floor(position)) * (high - low)) if ends[-1] else 1
            self.given["length"] = min(self._longest, -(-max(quantile, 1) // 8) * 8)

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        texts = self._texts(cells)
        kind = np.int32 if self.processor else np.uint8
        stored = np.full((len(texts), *self.shape), self.processor.get("pad", 0), kind)
        for row, text in enumerate(texts):
            code = self._codes(text or "", self.shape[0])
            stored[row, : len(code)] = code
        return stored, np.array([text is not None for text in texts])

    def _codes(self, text: str, length: int | None = None) -> np.ndarray:
        """Return the bytes or tokens of a text, at most `length`."""
        if not self.processor:
            return np.frombuffer(text.encode().replace(b"\0", b" ")[:length], dtype=np.uint8)
        if self._tokenizer is None:
            self._tokenizer = _checks.extra("tokenizers", "train").Tokenizer.from_str(self.processor["tokenizer"])
            self._tokenizer.no_padding()
        if length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(length)  # keeps the final special token
        return np.array(self._tokenizer.encode(text).ids, dtype=np.int32)

    def _texts(self, cells: Cells) -> list[str | None]:
        """Return the text in every cell; None if the cell is empty or is a word of `EMPTY_TEXT`."""
        values = cells.columns[self._column].to_pylist()
        for row, value in enumerate(values, start=cells.start):
            if isinstance(value, (bytes, list, dict)):
                raise self._cell_error(row, "text", repr(value)[:40], "correct it")
            if isinstance(value, str) and value and not value.strip():
                raise self._cell_error(row, "text", "only white space", "leave the cell empty where there is no text")
        return [None if value is None or value == "" or value in EMPTY_TEXT else str(value) for value in values]


class VectorReader(Reader):
    """Reader of lists of numbers, all of one length; `Column.standardize` sets `scaling`."""

    kind = "vector"

    scaling: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.given["features"]),)

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        if "features" not in self.given:
            first = next((value for value in self._lists(cells) if value is not None), None)
            if first is not None:
                self.given["features"] = len(first)

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        column = cells.columns[self._column]
        values, size = self._lists(cells), self.shape[0]
        present = np.array([value is not None for value in values])
        for row, value in enumerate(values, start=cells.start):
            if value is not None and len(value) != size:
                raise self._cell_error(row, f"lists of {size} numbers", f"{len(value)}", "make their lengths equal")
        stored = np.zeros((len(values), size), dtype=np.float32)
        if present.any():
            numbers = _flat_numbers(column, values)
            if numbers is None or not np.isfinite(numbers).all():
                lists = column.to_pylist() if any(isinstance(value, range) for value in values) else values
                row = next(i for i, value in enumerate(lists) if value is not None and not _finite(value))
                raise self._cell_error(cells.start + row, "lists of finite numbers", "another value", "correct it")
            stored[present] = numbers.reshape(-1, size)
        return stored, present

    def tensor(self, stored: np.ndarray) -> Tensor:
        view = torch.from_numpy(stored)
        return view if self.scaling is None else (view - self.scaling[0]) / self.scaling[1]

    def _lists(self, cells: Cells) -> list[Sequence[float] | None]:
        """Return a list per cell, None if empty.

        For a column of pyarrow lists, return ranges of the same lengths, to avoid a Python object per number.
        """
        column = cells.columns[self._column]
        if hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            return [None if length is None else range(length) for length in list_lengths(column)]
        lists: list[Sequence[float] | None] = []
        for row, value in enumerate(column.to_pylist(), start=cells.start):
            try:
                value = None if isinstance(value, str) and value in EMPTY_TEXT else value
                numbers = parse_json(value) if isinstance(value, str) and value else value or None
            except json.JSONDecodeError:
                numbers = value
            if numbers is not None and not isinstance(numbers, list):
                raise self._cell_error(row, "lists of numbers, as in [0.1, 2]", repr(value)[:40], "correct it")
            lists.append(numbers)
        return lists


def list_lengths(column: pa.Array) -> list[int | None]:
    compute = _checks.extra("pyarrow.compute", "train")
    lengths: list[int | None] = compute.list_value_length(column).to_pylist()
    return lengths


def _flat_numbers(column: pa.Array, values: Sequence[Sequence[float] | None]) -> np.ndarray | None:
    """Return the concatenated numbers of the lists; None if an element is not a number."""
    if hasattr(column.type, "value_type"):
        numbers = column.drop_null().flatten()
        return None if numbers.null_count else numbers.to_numpy(zero_copy_only=False).astype(np.float32)
    try:
        return np.array([number for value in values if value is not None for number in value], dtype=np.float32)
    except (TypeError, ValueError):
        return None


def _finite(value: Sequence[float]) -> bool:
    try:
        return bool(np.isfinite(np.array(list(value), dtype=np.float32)).all())
    except (TypeError, ValueError):
        return False
