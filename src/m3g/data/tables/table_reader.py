"""Reader of a view of one or more columns of numbers, dates and categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from m3g._options import Processor
from m3g.data.tables.kinds import EMPTY, MAX_CATEGORIES, as_date, as_number
from m3g.data.tables.reader import Cells, Reader, Recipe

# Fitted columns. Numbers: name, mean, divisor, and whether training rows have empty cells. Categories: name and sorted
# categories.
Numbers: TypeAlias = tuple[Literal["numbers"], str, float, float, bool]
Categories: TypeAlias = tuple[Literal["categories"], str, list[str]]
Layout: TypeAlias = Sequence[Numbers | Categories]


class TableReader(Reader):
    """Reader of columns: standardised numbers, one-hot categories, and indicators of empty cells among numbers.

    Means, divisors and categories are fitted to the training rows and stored in the recipe, as `layout`. Dates are
    numbers of days. In a column of categories, numbers and dates are categories too, distinguished as written (`7` and
    `007`). A row whose cells are all empty is a missing entry. A category that is not in the training rows is encoded
    as zeros.
    """

    kind = "table"
    options = ("columns",)

    def __init__(
        self,
        name: str,
        columns: Sequence[str],
        *,
        layout: Layout | None = None,
        processor: Processor | None = None,
        **given: float,
    ):
        super().__init__(name, columns, processor=processor, **given)
        self.layout = layout
        self._categories: dict[str, dict[str, None]] = {column: {} for column in columns}
        self._sums = {column: np.zeros(3) for column in columns}  # count, sum, sum of squares
        self._has_empty = dict.fromkeys(columns, False)
        self._has_words = dict.fromkeys(columns, False)
        self._shift: dict[str, float] = {}  # first number of a column; subtracting it avoids cancellation

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.layout is not None
        return (sum(_width(part) for part in self.layout),)

    def learn(self, cells: Cells, train: np.ndarray) -> None:
        for column in self.columns:
            values = [value for value, is_train in zip(self._values(cells, column), train) if is_train]
            self._has_empty[column] |= any(value is None for value in values)
            present = [value for value in values if value is not None]
            if any(isinstance(value, str) for value in present):
                self._has_words[column] = True
            categories = self._categories[column]
            if len(categories) <= MAX_CATEGORIES:
                words = zip(self._words(cells, column), train)
                categories.update({word: None for word, is_train in words if is_train and word is not None})
            numbers = np.array([value for value in present if not isinstance(value, str)], dtype=np.float64)
            if len(numbers):
                shift = self._shift.setdefault(column, float(numbers[0]))
                numbers = numbers - shift
                self._sums[column] += [len(numbers), numbers.sum(), np.square(numbers).sum()]

    def finish(self) -> None:
        if self.layout is not None:
            return
        layout: list[Numbers | Categories] = []
        for column in self.columns:
            if self._has_words[column]:
                categories = sorted(self._categories[column])
                if len(categories) > MAX_CATEGORIES:
                    raise ValueError(
                        f"column {column!r} must have at most {MAX_CATEGORIES} categories, got more: exclude it "
                        f"with --data_options.ignore, or make it text with --view.{column}.kind text."
                    )
                layout.append(("categories", column, categories))
                self._note_constant(column, len(categories) == 1 and not self._has_empty[column])
                continue
            count, total, squares = self._sums[column]
            mean = total / count if count else 0.0
            deviation = np.sqrt(max(squares / count - mean**2, 0.0)) if count else 0.0
            divisor = deviation if deviation > 0 else 1.0
            self._note_constant(column, bool(count > 1 and deviation == 0) and not self._has_empty[column])
            centre = mean + self._shift.get(column, 0.0)
            layout.append(("numbers", column, float(centre), float(divisor), self._has_empty[column]))
        self.layout = layout

    def _note_constant(self, column: str, constant: bool) -> None:
        if constant:
            self.notes.append(f"column {column!r} is constant in all training rows and carries no information")

    def encode(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        assert self.layout is not None
        parts, present = [], np.zeros(len(next(iter(cells.columns.values()))), dtype=bool)
        for part in self.layout:
            column = part[1]
            if part[0] == "categories":
                words = self._words(cells, column) if column in cells.columns else [None] * len(present)
                filled = np.array([word is not None for word in words])
                code = {category: i for i, category in enumerate(part[2])}
                features = np.zeros((len(words), len(code)), dtype=np.float32)
                for row, word in enumerate(words):
                    if word in code:
                        features[row, code[word]] = 1.0
            else:
                _, _, mean, divisor, has_empty = part
                values = self._values(cells, column) if column in cells.columns else [None] * len(present)
                filled = np.array([value is not None for value in values])
                scaled = []
                for row, value in enumerate(values, start=cells.start):
                    if isinstance(value, str):
                        raise self._not_a_number(row, column, value)
                    scaled.append(0.0 if value is None else (value - mean) / divisor)
                features = np.array([scaled, ~filled] if has_empty else [scaled], dtype=np.float32).T
            present |= filled
            parts.append(features)
        return np.concatenate(parts, axis=1), present

    def unknown(self, cells: Cells) -> list[object]:
        assert self.layout is not None
        known = {part[1]: set(part[2]) for part in self.layout if part[0] == "categories" and part[1] in cells.columns}
        words = [(column, word) for column in known for word in self._words(cells, column)]
        return [word for column, word in words if word is not None and word not in known[column]]

    def _values(self, cells: Cells, column: str) -> list[float | str | None]:
        """Return the numbers and words of a column; None for an empty cell, NaN, or a word such as "n/a"."""
        values: list[float | str | None] = []
        for row, value in enumerate(cells.columns[column].to_pylist(), start=cells.start):
            if isinstance(value, str):
                number = as_number(value)
                number = as_date(value) if number is None else number
                value = None if value.strip().lower() in ("", *EMPTY) else value if number is None else number
            elif value is not None:
                date = as_date(value)
                value = float(value) if date is None else date
            if isinstance(value, float) and math.isinf(value):
                raise self._not_a_number(row, column, value)
            values.append(None if isinstance(value, float) and math.isnan(value) else value)
        return values

    def _words(self, cells: Cells, column: str) -> list[str | None]:
        """Return the categories in a column, texts as written; None for an empty cell."""
        words: list[str | None] = []
        for cell, value in zip(cells.columns[column].to_pylist(), self._values(cells, column)):
            if value is None:
                words.append(None)
            else:
                words.append(cell if isinstance(cell, str) else _number_word(float(value)))
        return words

    def _not_a_number(self, row: int, column: str, value: float | str) -> ValueError:
        return self._cell_error(row, f"finite numbers in column {column!r}", f"{value!r}", "correct it")

    def recipe(self) -> Recipe:
        return {**super().recipe(), "layout": self.layout}


def _width(part: Numbers | Categories) -> int:
    """Return the number of features of a fitted column."""
    return len(part[2]) if part[0] == "categories" else 1 + part[4]


def _number_word(value: float) -> str:
    """Return the category of a number that is not stored as text."""
    return str(int(value)) if value.is_integer() else repr(value)
