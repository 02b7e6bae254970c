"""Tables as other programs write them: separators, indices, decimal commas, dates, JSON, workbooks, other encodings."""

import json
import sys
import uuid
import zipfile

import openpyxl
import pandas as pd
import pytest
import torch
from PIL import Image

from frames import FRAME, WRITERS
from m3g.data import Objects
from m3g.data.storage import limits
from m3g.data.tables.source import open_table


@pytest.mark.parametrize("name", WRITERS)
def test_tables_of_every_format_have_the_same_views(tmp_path, name):
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    WRITERS[name](FRAME, tmp_path / name)
    expected, actual = (Objects(tmp_path / file, batch_size=8) for file in ("plain.csv", name))
    assert actual.view_names == ["caption", "table"]
    assert actual.inputs[1]["columns"] == ["price", "when", "age"]
    for ours, theirs in zip(actual.arrays("train")[0], expected.arrays("train")[0], strict=True):
        torch.testing.assert_close(ours, theirs)


ROWS = [(f"{colour} chair no. {i}", i * i + 0.5, i % 7) for i, colour in enumerate(["red", "blue"] * 10)]


def write(path, head, *, separator=",", before="", rows=ROWS):
    lines = [separator.join(map(str, row)) for row in rows]
    path.write_text(before + "\n".join([separator.join(head), *lines, ""]))
    return path


@pytest.mark.parametrize(
    ("name", "head", "separator"),
    [("T.CSV", ["name", "w", "h"], ","), ("t.tsv", ["name", "w", "h"], ";"), ("t.csv", ["name ", " w", " h"], ", ")],
    ids=["suffix", "separator", "spaces"],
)
def test_unusual_suffixes_separators_and_spaces_are_read(tmp_path, name, head, separator):
    data = Objects(write(tmp_path / name, head, separator=separator), batch_size=8)
    assert data.inputs[1]["columns"] == ["w", "h"]


def test_one_text_column_with_commas_in_a_tsv_file_is_not_split(tmp_path):
    (tmp_path / "t.tsv").write_text("caption\na cat, a dog\nan owl, a tree\n")
    assert list(open_table(tmp_path / "t.tsv").types) == ["caption"]


@pytest.mark.parametrize(
    ("before", "rows", "message"),
    [
        ("# exported today\n# in mm\n", ROWS, "row 1 has 3 cells, but the first line has 1:"),
        ("", [(i, *row) for i, row in enumerate(ROWS)], "row 0 has 4 cells, but the first line has 3:"),
        ("", [*ROWS, (*ROWS[0], "more")], "row 20 has 4 cells, but the first line has 3:"),
    ],
    ids=["comments", "row names of R", "ragged"],
)
def test_rows_with_another_number_of_cells_than_the_first_line_are_reported(tmp_path, before, rows, message):
    with pytest.raises(ValueError, match=message):
        Objects(write(tmp_path / "t.csv", ["name", "w", "h"], before=before, rows=rows))


def test_a_table_without_column_names_is_noted(tmp_path):
    path = write(tmp_path / "t.csv", [str(cell) for cell in ROWS[0]], rows=ROWS[1:])
    assert any("if it is data, insert a line of names" in note for note in Objects(path, batch_size=8).notes)
    assert not any("names" in note for note in Objects(write(path, ["name", "0", "1"]), batch_size=8).notes)


def test_a_repeated_name_is_reported(tmp_path):
    with pytest.raises(ValueError, match="a different name for every column, got 'w' twice"):
        Objects(write(tmp_path / "t.csv", ["name", "w", "w"]))


def test_empty_and_identifying_columns_are_skipped_with_a_note(tmp_path):
    rows = [(f"K-{1000 + 7 * i}", str(uuid.UUID(int=i)), "", f"word{i % 5}", *row) for i, row in enumerate(ROWS)]
    data = Objects(
        write(tmp_path / "t.csv", ["key", "code", "comment", "word", "name", "w", "h"], rows=rows), batch_size=8
    )
    assert data.inputs[0]["columns"] == ["word", "w", "h"]
    assert [note for note in data.notes if "is not used" in note] == [
        "column 'key' identifies the rows and is not used (set --view.key.kind to keep it)",
        "column 'code' identifies the rows and is not used (set --view.code.kind to keep it)",
        "column 'comment' is empty and is not used",
    ]


def test_question_marks_are_missing_numbers(tmp_path):
    rows = [(name, "?" if i % 5 == 0 else w, h) for i, (name, w, h) in enumerate(ROWS)]
    source = Objects(write(tmp_path / "t.csv", ["name", "w", "h"], rows=rows), batch_size=8)
    assert source.inputs[1]["columns"] == ["w", "h"]


def test_paths_written_on_windows_are_read(tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(20):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    rows = [(f"photos\\{i}.png", *row) for i, row in enumerate(ROWS)]
    data = Objects(write(tmp_path / "t.csv", ["photo", "name", "w", "h"], rows=rows), batch_size=8)
    assert data.view_names == ["photo", "name", "table"]
    rows = [(f"C:\\me\\photos\\{i}.png", *row) for i, row in enumerate(ROWS)]
    (tmp_path / "tables").mkdir()
    path = write(tmp_path / "tables" / "t.csv", ["photo", "name", "w", "h"], rows=rows)
    assert Objects(path, batch_size=8, data_root=str(tmp_path)).view_kinds[0] == "image"


def test_rows_within_a_json_mapping_are_read(tmp_path):
    rows = [dict(zip(["name", "w", "h"], row)) for row in ROWS]
    (tmp_path / "t.json").write_text(json.dumps({"results": rows}))
    assert Objects(tmp_path / "t.json", batch_size=8).inputs[1]["columns"] == ["w", "h"]


def test_a_column_of_json_may_be_named_data(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"data": [1, 2], "size": [3, 4]}))
    assert open_table(tmp_path / "t.json").rows(["data", "size"], [1]) == {1: {"data": 2, "size": 4}}


def test_thousands_separators_and_commas_in_text_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;text\n1.234,5;1,0;x, y\n-7;NA;z\n12;2,5;u, v, w\n")
    source = open_table(tmp_path / "t.csv")
    assert source.column("a") == ["1234.5", "-7", "12"]
    assert source.column("b") == ["1.0", "NA", "2.5"]
    assert source.column("text") == ["x, y", "z", "u, v, w"]


def test_workbooks_are_limited(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="damaged, or not a workbook"):
        Objects(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (2**26 + 1))
    with pytest.raises(ValueError, match="more than 200 times its file size"):
        Objects(path)
    book = openpyxl.Workbook()
    book.active.append([f"c{i}" for i in range(40)])
    book.active.cell(row=1_000_000, column=1, value="far away")
    book.save(path)
    with pytest.raises(ValueError, match="nearly all of them empty"):
        Objects(path)
    book = openpyxl.Workbook()
    book.active.append(["a"])
    book.active.append(["x", "y"])
    book.save(path)
    with pytest.raises(ValueError, match="row 0 has 2 cells, but the first row has 1:"):
        Objects(path)
    with monkeypatch.context() as patch:
        patch.setattr(limits, "memory_limit", lambda device: 1)
        with pytest.raises(ValueError, match=r"^the content of '.*t\.xlsx' must be at most"):
            Objects(path)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'm3g\[xlsx\]'"):
        Objects(path)


@pytest.mark.parametrize(
    "content", ['"text"', '{"a": [1], "b": [1, 2]}', '{"a": 1}', "[1]", "[" * 10**5, '{"data": 3}']
)
def test_json_that_is_not_a_table_is_rejected(tmp_path, content):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match="must be a table that can be read"):
        Objects(tmp_path / "t.json")


def test_na_is_a_missing_entry_of_text_files_and_lists(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    names = [f"tree no. {i}" for i in range(20)]
    frame = pd.DataFrame({"name": names, "photo": "a.png", "scan": "[1, 2]", "size": range(3, 43, 2)})
    for row, column in enumerate(["name", "photo", "scan"]):
        frame.loc[row, column] = None
    frame.to_csv(tmp_path / "t.csv", index=False, na_rep="NA")  # as written by R
    data = Objects(tmp_path / "t.csv", batch_size=8, duplicates=True)
    assert data.view_names == ["name", "photo", "scan", "table"]
    missing = {}
    for split in ("train", "val", "test"):
        for batch in data.loader(split):
            missing |= dict(zip(batch["index"].tolist(), (~batch["mask"]).T.tolist()))
    assert [missing[row] for row in range(4)] == [[row == l for l in range(4)] for row in range(3)] + [[False] * 4]
    assert "na" not in data.inputs[0]["words"]


def test_numbers_with_units_are_reported(tmp_path):
    prices = ["1,234.50", "$5", "12 %", "3.20 €", "21°C"] * 4
    plain = [f"board {i}" for i in range(20)]
    frame = pd.DataFrame({"name": plain, "price": prices, "code": [f"{i}A-{i}" for i in range(20)], "x": range(5, 25)})
    frame.loc[4::5, "price"] = "-7 kg"
    frame.to_csv(tmp_path / "t.csv", index=False)
    notes = Objects(tmp_path / "t.csv", batch_size=8).notes
    note = "column 'price' has numbers with separators or units ('1,234.50'), which are read as categories: write plain"
    assert [line for line in notes if "units" in line] == [f"{note} numbers"]
