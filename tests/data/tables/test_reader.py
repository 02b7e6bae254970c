"""Readers of text and of lists of numbers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from m3g.data.storage.moved import Folders
from m3g.data.tables.reader import Cells, TextReader, VectorReader


def cells(values, *, start=0, kind=None):
    return Cells(start, {"c": pa.array(values, kind)}, Folders(Path()))


def fitted(reader, values):
    reader.learn(cells(values), np.ones(len(values), dtype=bool))
    reader.finish()
    return reader


def test_the_length_of_text_covers_nearly_all_texts():
    texts = ["x" * 12] * 199 + ["x" * 400]
    reader = fitted(TextReader("caption", ["c"]), texts)
    assert reader.shape == (16,)  # a multiple of 8
    stored, present = reader.encode(cells(["ab", None, "y" * 20]))
    assert stored[0].tolist() == [97, 98] + [0] * 14
    assert stored[2].tolist() == [121] * 16
    assert present.tolist() == [True, False, True]


def test_white_space_is_not_text():
    with pytest.raises(ValueError, match=r"view 'caption' must be text, got only white space in row 8"):
        TextReader("caption", ["c"], length=8).encode(cells(["a", " "], start=7))


@pytest.mark.parametrize("kind", [None, pa.list_(pa.float32())])
def test_lists_of_numbers_are_read_from_text_and_from_arrow(kind):
    values = [[1.0, 2.0], None, [3.0, 4.5]]
    given = values if kind is not None else ["[1, 2]", "", "[3, 4.5]"]
    reader = VectorReader("v", ["c"])
    reader.learn(cells(given, kind=kind), np.ones(3, dtype=bool))
    stored, present = reader.encode(cells(given, kind=kind))
    assert present.tolist() == [True, False, True]
    assert stored[present].tolist() == [[1.0, 2.0], [3.0, 4.5]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["[1, 2]", "[1]"], "must be lists of 2 numbers, got 1 in row 1"),
        (["[1, 2]", "x"], r"must be lists of numbers, as in \[0.1, 2\], got 'x' in row 1"),
        (["[1, 2]", "[1, NaN]"], "must be lists of finite numbers, got another value in row 1"),
    ],
)
def test_other_lists_are_errors_with_their_row(values, message):
    with pytest.raises(ValueError, match=message):
        VectorReader("v", ["c"], features=2).encode(cells(values))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), None])
def test_a_list_that_is_not_finite_is_an_error_with_its_row(kind):
    values = [[1.0, 2.0], None, [float("nan"), 1.0]] if kind is not None else ["[1, 2]", "", "[NaN, 1]"]
    with pytest.raises(ValueError, match="must be lists of finite numbers, got another value in row 2"):
        VectorReader("v", ["c"], features=2).encode(cells(values, kind=kind))
