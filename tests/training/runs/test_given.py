"""Values, lists, frames and images as a user passes them to a network."""

import pandas as pd
import pytest
import torch
from PIL import Image

from m3g.training.runs.given import convert_view, split_frame

RECIPES = [{"kind": "text", "columns": ["note"]}, {"kind": "table", "columns": ["age", "colour"]}]


def test_a_frame_gives_the_views_whose_columns_it_has():
    frame = pd.DataFrame({"note": ["a", None], "age": [1.0, float("nan")], "other": [0, 0]})
    views = split_frame(frame, ["text", "table"], RECIPES)
    assert views == {"text": {"note": ["a", None]}, "table": {"age": [1.0, None]}}
    with pytest.raises(ValueError, match="at least one of the columns age, colour, note, got other"):
        split_frame(frame[["other"]], ["text", "table"], RECIPES)


def test_a_single_value_is_one_row():
    assert convert_view("a word", "text", (8,), RECIPES[0]) == ["a word"]
    assert convert_view({"age": 3, "colour": "red"}, "table", (4,), RECIPES[1]) == {"age": [3], "colour": ["red"]}
    assert convert_view([1.0, 2.0, 3.0], "v", (3,), {"kind": "vector"}).shape == (1, 3)
    assert convert_view(torch.zeros(5, 3), "v", (3,), {"kind": "vector"}).shape == (5, 3)


def test_rows_of_cells_become_columns():
    rows = [{"age": 1}, {"age": 2, "colour": "red"}]
    assert convert_view(rows, "table", (4,), RECIPES[1]) == {"age": [1, 2], "colour": [None, "red"]}
    with pytest.raises(ValueError, match=r"view 'table' must have columns of one length, got \[1, 2\]"):
        convert_view({"age": [1, 2], "colour": ["red"]}, "table", (4,), RECIPES[1])


def test_an_image_requires_a_view_of_images():
    image = Image.new("RGB", (4, 4))
    (content,) = convert_view(image, "photo", (3, 4, 4), {"kind": "image", "columns": ["photo"]})
    assert content.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="view 'v' must be numbers, got an image"):
        convert_view(image, "v", (3,), {"kind": "vector"})
