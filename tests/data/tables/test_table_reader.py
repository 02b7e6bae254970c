"""Numbers and categories as one view."""

import torch

from animals import write_csv
from m3g.data import Objects
from m3g.data.tables.new_objects import from_cells


def test_numbers_and_categories_are_fitted_on_the_training_rows(tmp_path):
    people = [(10, "f", 1, "train"), (20, "m", None, "train"), (30, "f", 3, "train"), (9, "x", 5, "test")]
    people.append((None, None, None, "test"))
    content = [
        {**dict(zip(("age", "sex", "weight", "part"), row)), "word": f"text {i}"} for i, row in enumerate(people)
    ]
    view = {"table": {"columns": ["age", "sex", "weight"]}}
    data = Objects(write_csv(tmp_path, content), split="part", view=view, batch_size=2)
    table = data.arrays("train")[0][data.view_names.index("table")]
    torch.testing.assert_close(table[:, 0], torch.tensor([-1.0, 0, 1]) * 1.5**0.5)
    assert table[:, 1:3].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert table[:, 3:].tolist() == [[-1, 0], [0, 1], [1, 0]]
    views, mask, _ = data.arrays("test")
    new = views[data.view_names.index("table")]
    assert new[0, 1:3].tolist() == [0, 0]  # a category that training did not have
    assert mask[data.view_names.index("table")].tolist() == [True, False]


def test_long_codes_are_different_categories(tmp_path):
    codes = ["1234567", "1234568", "A12"]
    content = [{"code": codes[i % 3], "word": f"text {i}", "part": "test" if i == 29 else "train"} for i in range(30)]
    data = Objects(write_csv(tmp_path, content), split="part", view={"code": {"kind": "table"}})
    assert data.inputs[data.view_names.index("code")]["layout"] == [("categories", "code", codes)]


def test_numbers_among_words_are_categories_as_written(tmp_path):
    codes = ["007", "1970-01-08", "7", "7.0", "A12"]
    content = [{"code": codes[i % 5], "word": f"text {i}", "part": "test" if i > 34 else "train"} for i in range(40)]
    data = Objects(write_csv(tmp_path, content), split="part", view={"code": {"kind": "table"}}, batch_size=5)
    view = data.view_names.index("code")
    assert data.inputs[view]["layout"] == [("categories", "code", codes)]
    assert torch.equal(data.arrays("test")[0][view], torch.eye(5))
    numbers, present = from_cells("code", data.inputs[view], [7, None])  # a number has no leading zeros
    assert numbers.tolist() == [[0, 0, 1, 0, 0], [0] * 5]
    assert present.tolist() == [True, False]


def test_one_category_and_empty_cells_are_not_constant(tmp_path):
    content = [{"flag": "yes" if i % 2 else None, "all": "yes", "size": i % 7, "word": f"text {i}"} for i in range(40)]
    view = {"table": {"columns": ["flag", "all", "size"]}}
    notes = [note for note in Objects(write_csv(tmp_path, content), view=view).notes if "constant" in note]
    assert notes == ["column 'all' is constant in all training rows and carries no information"]
