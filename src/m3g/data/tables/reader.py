"""From the cells of a table to the tensors of a view: the interface of readers, and those of text and vectors."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.storage.limits import parse_json

LONGEST_TEXT = 512  # bytes, unless the user says otherwise


class Cells(NamedTuple):
    """Some rows of the columns of a view: the number of the first, pyarrow's array per column, where paths begin."""

    start: int
    columns: Mapping[str, Any]
    folder: Path


class Reader(ABC):
    """How a view is read: `learn` goes through the table once, `encode` gives what is stored, `tensor` what a net sees.

    `recipe` has all that `learn` found, in plain values: `from_recipe` reads new data in the same way.
    """

    kind: ClassVar[str]
    options: ClassVar[tuple[str, ...]] = ()  # the settings of a view that this kind takes
    processed: ClassVar[tuple[str, ...]] = ()  # what it takes of the processor of a pretrained model
    dtype: torch.dtype = torch.float32  # of what a net sees

    def __init__(self, name: str, columns: Sequence[str], *, processor: Mapping[str, Any] | None = None, **given: Any):
        self.name, self.columns = name, list(columns)
        self.processor = {word: value for word, value in (processor or {}).items() if word in self.processed}
        for option, value in given.items():
            _checks.positive(f"view.{name}.{option}", value)
        self.given = given
        self.notes: list[str] = []  # what a user should know about the view, a sentence each

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    def learn(self, cells: Cells, train: np.ndarray) -> None:  # noqa: B027 - not every kind has something to learn
        """Take note of what these rows have; `train` says which of them are trained on."""

    def finish(self) -> None:  # noqa: B027
        """After the last rows."""

    @abstractmethod
    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """What is stored of these rows, and which of them have the view, bool."""

    def damaged(self, stored: np.ndarray) -> np.ndarray:
        """Which of the present rows cannot be read, bool."""
        return np.zeros(len(stored), dtype=bool)

    def tensor(self, stored: np.ndarray) -> Tensor:
        return torch.from_numpy(stored)

    def recipe(self) -> dict[str, Any]:
        beside = {"processor": self.processor} if self.processor else {}
        return {"kind": self.kind, "columns": self.columns, **self.given, **beside}

    def tensors(self) -> dict[str, Tensor]:
        """Numbers that belong to the recipe, to be stored beside the weights of the network."""
        return {}

    def _refuse(self, row: int, what: str, got: str, instead: str) -> ValueError:
        return ValueError(f"view {self.name!r} must be {what}, got {got} in row {row}: {instead}.")

    @property
    def _column(self) -> str:
        return self.columns[0]


class TextReader(Reader):
    """Text as the bytes of its UTF-8, or as the tokens of a pretrained model, filled up to a length that most fit in.

    Bytes are filled up with zeros, tokens with the model's padding; longer texts are cut.
    """

    kind = "text"
    options = ("length",)
    processed: ClassVar[tuple[str, ...]] = ("model", "tokenizer", "pad", "longest")

    def __init__(self, name: str, columns: Sequence[str], **given: Any):
        super().__init__(name, columns, **given)
        if self.processor and "tokenizer" not in self.processor:
            raise ValueError(
                f"view.{name}.model must have a tokenizer beside its weights, got none in {self.processor['model']!r}."
            )
        self.dtype = torch.int32 if self.processor else torch.uint8
        self._longest = min(LONGEST_TEXT, self.processor.get("longest", LONGEST_TEXT))
        self._counts = np.zeros(self._longest + 1, dtype=np.int64)  # of texts, by their length
        self._tokenizer: Any = None

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
            place = 0.99 * max(ends[-1] - 1, 0)
            low, high = np.searchsorted(ends, [math.floor(place), math.ceil(place)], side="right")
            usual = int(low + (place - math.floor(place)) * (high - low)) if ends[-1] else 1
            self.given["length"] = min(self._longest, -(-max(usual, 1) // 8) * 8)

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        texts = self._texts(cells)
        kind = np.int32 if self.processor else np.uint8
        stored = np.full((len(texts), *self.shape), self.processor.get("pad", 0), kind)
        for row, text in enumerate(texts):
            code = self._codes(text or "", self.shape[0])
            stored[row, : len(code)] = code
        return stored, np.array([text is not None for text in texts])

    def _codes(self, text: str, length: int | None = None) -> np.ndarray:
        """The numbers of a text, at most so many."""
        if not self.processor:
            return np.frombuffer(text.encode().replace(b"\0", b" ")[:length], dtype=np.uint8)
        if self._tokenizer is None:
            self._tokenizer = _checks.extra("tokenizers", "train").Tokenizer.from_str(self.processor["tokenizer"])
            self._tokenizer.no_padding()
        if length is None:
            self._tokenizer.no_truncation()
        else:
            self._tokenizer.enable_truncation(length)  # so that what ends a text is kept
        return np.array(self._tokenizer.encode(text).ids, dtype=np.int32)

    def _texts(self, cells: Cells) -> list[str | None]:
        values = cells.columns[self._column].to_pylist()
        for row, value in enumerate(values, start=cells.start):
            if isinstance(value, (bytes, list, dict)):
                raise self._refuse(row, "text", repr(value)[:40], "correct it")
            if isinstance(value, str) and value and not value.strip():
                raise self._refuse(row, "text", "only white space", "leave the cell empty where there is no text")
        return [None if value is None or value == "" else str(value) for value in values]


class VectorReader(Reader):
    """A list of numbers per row, of one length; scaled by the network's inputs, not here."""

    kind = "vector"

    def __init__(self, name: str, columns: Sequence[str], **given: Any):
        super().__init__(name, columns, **given)
        self.scaling: tuple[Tensor, Tensor] | None = None

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
                raise self._refuse(row, f"lists of {size} numbers", f"{len(value)}", "make them equal")
        stored = np.zeros((len(values), size), dtype=np.float32)
        if present.any():
            flat = _numbers_of(column, values)
            if flat is None or not np.isfinite(flat).all():
                row = next(i for i, value in enumerate(values) if value is not None and not _finite(value))
                raise self._refuse(cells.start + row, "lists of finite numbers", "another value", "correct it")
            stored[present] = flat.reshape(-1, size)
        return stored, present

    def tensor(self, stored: np.ndarray) -> Tensor:
        view = torch.from_numpy(stored)
        return view if self.scaling is None else (view - self.scaling[0]) / self.scaling[1]

    def _lists(self, cells: Cells) -> Any:
        column = cells.columns[self._column]
        if hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            # without a Python object per number: only the lengths are asked for
            lengths = [None if value is None else range(value) for value in lengths_of(column)]
            return lengths
        values = column.to_pylist()
        parsed: list[Any] = []
        for row, value in enumerate(values, start=cells.start):
            try:
                one = parse_json(value) if isinstance(value, str) and value else value or None
            except json.JSONDecodeError:
                one = "wrong"
            if one is not None and not isinstance(one, list):
                raise self._refuse(row, "lists of numbers, as in [0.1, 2]", repr(value)[:40], "correct it")
            parsed.append(one)
        return parsed


def lengths_of(column: Any) -> list[int | None]:
    compute = _checks.extra("pyarrow.compute", "train")
    lengths: list[int | None] = compute.list_value_length(column).to_pylist()
    return lengths


def _numbers_of(column: Any, values: Sequence[Any]) -> np.ndarray | None:
    """All numbers of the lists, one after the other; None where one is no number."""
    if hasattr(column.type, "value_type"):
        numbers = column.drop_null().flatten()
        return None if numbers.null_count else numbers.to_numpy(zero_copy_only=False).astype(np.float32)
    try:
        return np.array([number for value in values if value is not None for number in value], dtype=np.float32)
    except (TypeError, ValueError):
        return None


def _finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(np.array(list(value), dtype=np.float32)).all())
    except (TypeError, ValueError):
        return False
