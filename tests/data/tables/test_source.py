"""A table that cannot be used for training: one line with the reason, exit code 2, no files."""

import json
import re

import numpy as np
import pytest

from animals import rows, write_csv


@pytest.fixture(scope="module")
def valid_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    return folder, rows(folder, 30, missing=False)


def _with(content, row, **cells):
    return [{**one, **cells} if i == row else one for i, one in enumerate(content)]


SMALL = ["--data_options.batch_size", "8", "--data_options.ignore", "[home]"]
WRONG = {
    "a missing file": (lambda c: _with(c, 4, photo="no.png"), [], "files that exist, got 'no.png' in row 4"),
    "a missing sound": (lambda c: _with(c, 4, sound="x/no.wav"), [], "'sound' must be files that exist"),
    "two kinds": (lambda c: _with(c, 2, photo="2.wav"), [], "'photo' must be of one kind, got an image path in row 0"),
    "a word among numbers": (lambda c: _with(c, 7, age="old"), [], r"'age' must be of one kind, got a number in row 0"),
    "an unknown column": (lambda c: c, ["--labels", "breed"], "labels must be one of 'age', .* got 'breed'"),
    "an unknown group": (lambda c: c, ["--groups", "house"], "groups must be one of 'age', .* got 'house'"),
    "an unknown view": (lambda c: c, ["--view.phto.size", "9"], "view must name views of the data .*got 'phto'"),
    "an unknown column of a view": (lambda c: c, ["--view.x.columns", "[age, size]"], "view.x.columns .* got 'size'"),
    "an unknown kind": (lambda c: c, ["--view.photo.kind", "film"], "view.photo.kind must be one of .*got 'film'"),
    "an option of another kind": (lambda c: c, ["--view.photo.rate", "8000"], "options of the kind image .*got rate"),
    "equal rows": (lambda c: [*c, c[3]], [], "rows must be different objects, got row 30 equal to row 3"),
    "empty text": (lambda c: _with(c, 5, caption="  "), [], "'caption' must be text, got only white space in row 5"),
    "a vector of another length": (lambda c: _with(c, 6, vector=[1, 2]), [], "lists of 4 numbers, got 2 in row 6"),
    "no vector": (lambda c: _with(c, 6, vector="[1, a]"), [], "must be lists of numbers, .* in row 6"),
    "a vector with NaN": (lambda c: _with(c, 6, vector="[1, 2, NaN, 3]"), [], "lists of finite numbers, .*in row 6"),
    "an infinite number": (lambda c: _with(c, 6, age="inf"), [], "finite numbers in column 'age', got inf in row 6"),
    "an empty sound": (lambda c: _with(c, 1, sound="empty.wav"), [], "sounds must be readable .*1 damaged of 30"),
    "a wrong rate": (lambda c: c, ["--view.sound.rate", "5"], "view.sound.rate must be from 1000 to 192000 .*, got 5"),
    "a negative length": (lambda c: c, ["--view.sound.seconds", "-1"], "seconds must be a positive .*got -1"),
    "no image": (lambda c: _with(c, 1, photo="text.png"), [], "images must be readable .*1 damaged of 30.*text.png"),
    "a group in two splits": (
        lambda c: [{**row, "part": "test" if i % 2 else "train"} for i, row in enumerate(c)],
        ["--split", "part", "--groups", "home"],
        "split must assign every group to one split, got 'home 0' in 'train' and in 'test'",
    ),
    "an unknown split": (
        lambda c: [{**row, "part": "train" if i else "exam"} for i, row in enumerate(c)],
        ["--split", "part"],
        "split must be train, val or test in every row, got 'exam' in row 0",
    ),
    "a class without a name": (lambda c: _with(c, 9, kind=""), ["--labels", "kind"], "without empty cells, .*row 9"),
    "a row without views": (lambda c: [*c, dict.fromkeys(c[0], "")], [], "row 30 must have at least one view"),
    "one view": (lambda c: [{"photo": row["photo"]} for row in c], [], "table must have k >= 2 views, got 1"),
    "a wrong option of an encoder": (
        lambda c: c,
        ["--view.photo.encoder", "conv", "--view.photo.width", "3"],
        "view.photo must be among .*got width",
    ),
    "an encoder that shares with a later view": (
        lambda c: c,
        ["--view.photo.share", "sound"],
        "view.photo.share must be one of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_invalid_table_is_reported_in_one_line_and_leaves_no_files(
    case, valid_table, tmp_path, monkeypatch, error_line
):
    folder, content = valid_table
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.png").write_bytes(b"bytes that are no image")
    change, options, message = WRONG[case]
    table = write_csv(folder, change(content), f"{case}.csv")
    monkeypatch.chdir(tmp_path)
    ignored = SMALL if "home" in change(content)[0] and "--groups" not in options else SMALL[:2]
    line = error_line("train", "--table", table, *ignored, *options)
    assert re.search(message, line), line
    assert list(tmp_path.iterdir()) == []


def test_tables_that_cannot_be_read_are_rejected(tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "none.csv").write_text("a,b\n")
    (tmp_path / "no.parquet").write_bytes(b"no parquet")
    (tmp_path / "no.jsonl").write_text("{'a'}\n")
    (tmp_path / "mixed.jsonl").write_text(json.dumps({"a": 1}) + "\n" + json.dumps({"a": "x"}) + "\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "table.xlsx").write_bytes(b"")
    (tmp_path / "table.ods").write_bytes(b"")
    (tmp_path / "counted.csv").write_text("text,n\na b,0\nb c,1\nc d,2\n")
    before = sorted(tmp_path.iterdir())
    for name, message in {
        "missing.csv": "table must be a file or folder that exists",
        "short.csv": "table must be a table that can be read",
        "twice.csv": "a different name for every column",
        "none.csv": "table must have at least one row",
        "no.parquet": "table must be a table that can be read",
        "no.jsonl": "table must be a table that can be read",
        "mixed.jsonl": "column 'a' must be of one kind, got a number in row 0 and text in row 1",
        "folder": "a folder of .parquet files or one saved by datasets, got neither",
        "table.xlsx": "damaged, or not a workbook",
        "table.ods": "a file that ends in",
        "counted.csv": "got 1 (text): set view.NAME.columns to split numbers into views (column 'n' numbers the rows",
    }.items():
        assert message in error_line("train", "--table", name), name
    assert sorted(tmp_path.iterdir()) == before


def test_a_table_and_files_must_have_the_same_number_of_rows(valid_table, tmp_path, monkeypatch, error_line):
    folder, content = valid_table
    table = write_csv(folder, content)
    np.save(tmp_path / "more.npy", np.zeros((7, 2)))
    line = error_line("train", "--table", table, "--views", tmp_path / "more.npy", "--out", tmp_path / "run")
    assert "--views must have the 30 rows of the table, got 7" in line
    assert not (tmp_path / "run").exists()
