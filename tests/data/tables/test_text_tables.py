"""Tables as other programs write them: separators, indices, decimal commas, dates, JSON, workbooks, other encodings."""

import json
import sys
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch
from PIL import Image

from m3g.cli import main
from m3g.data import Arrays, Objects
from m3g.data.tables.source import open_table

N = 40
FRAME = pd.DataFrame(
    {
        "caption": [f"a crème number {i * 7919 % 1000}" for i in range(N)],
        "price": np.random.default_rng(0).normal(size=N).round(3) + 1000,
        "when": pd.date_range("2024-01-01", periods=N).astype(str),
        "age": np.random.default_rng(1).integers(1, 9, N),
    }
)
WRITERS = {
    "a.csv": lambda frame, path: frame.to_csv(path),
    "b.csv": lambda frame, path: frame.to_csv(path, sep=";", decimal=",", index=False),
    "c.tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "d.csv": lambda frame, path: frame.to_csv(path, sep="\t", decimal=","),
    "columns.json": lambda frame, path: frame.to_json(path),
    "records.json": lambda frame, path: frame.to_json(path, orient="records"),
    "split.json": lambda frame, path: frame.to_json(path, orient="split"),
    "table.json": lambda frame, path: frame.to_json(path, orient="table"),
    "lists.json": lambda frame, path: path.write_text(json.dumps(frame.to_dict("list"))),
    "lines.json": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "book.xlsx": lambda frame, path: frame.to_excel(path),
    "dates.parquet": lambda frame, path: frame.assign(when=pd.to_datetime(frame["when"])).to_parquet(path),
    "dates.xlsx": lambda frame, path: frame.assign(when=pd.to_datetime(frame["when"])).to_excel(path, index=False),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_program_writes_the_same_table(tmp_path, name):
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    WRITERS[name](FRAME, tmp_path / name)
    expected, found = (Objects(tmp_path / file, batch_size=8) for file in ("plain.csv", name))
    assert found.view_names == ["caption", "table"]
    assert found.inputs[1]["columns"] == ["price", "when", "age"]
    for ours, theirs in zip(found.arrays("train")[0], expected.arrays("train")[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_new_rows_are_read_in_the_same_way(tmp_path):
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    quick = ["--loop.epochs", "1", "--heads.hidden", "8", "--loop.evaluate_every", "0"]
    assert main(["train", *quick, "--table", str(tmp_path / "plain.csv"), "--out", str(tmp_path / "run")]) == 0
    for name, write in WRITERS.items():
        write(FRAME[:3], tmp_path / name)
        words = ["embed", str(tmp_path / "run"), "--out", str(tmp_path / f"{name}.npz"), "--table"]
        assert main([*words, str(tmp_path / name)]) == 0
    found = [np.load(tmp_path / f"{name}.npz")["embeddings"] for name in WRITERS]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)


def test_columns_that_are_not_features_are_skipped_with_a_note(tmp_path):
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (8, 8, 3)).astype(np.uint8)).save(tmp_path / "x.png")
    frame = FRAME.assign(
        sample_id=random.permutation(5000)[:N], uuid=[f"k{i * i}" for i in range(N)], number=range(1, N + 1),
        us=[f"{i % 12 + 1}/{i % 28 + 1}/2024" for i in range(N)], unit="cm", one=1.5, photo="x.png",
        farm_id=np.arange(N) % 7,
    )  # fmt: skip
    frame.to_csv(tmp_path / "t.csv")
    data = Objects(tmp_path / "t.csv")
    assert data.inputs[1]["columns"] == ["price", "when", "age", "unit", "one", "farm_id"]
    for what in (
        "'Unnamed: 0' counts the rows and is not used",
        "'sample_id' identifies the rows and is not used (--view.sample_id.kind keeps it)",
        "'uuid' identifies the rows",
        "'number' counts the rows",
        "'us' has dates with an ambiguous order of day and month",
        "'when' has dates, which are read as days since 1970-01-01",
        "'unit' is constant in all training rows",
        "'one' is constant in all training rows",
        "'photo' is the same file in all rows",
    ):
        assert sum(what in note for note in data.notes) == 1, (what, data.notes)
    assert len(data.notes) == 10  # and that few texts are read as TF-IDF
    kept = Objects(tmp_path / "t.csv", view={"sample_id": {"kind": "table"}})
    assert "sample_id" in kept.view_names
    frame.to_parquet(tmp_path / "t.parquet")
    assert Objects(tmp_path / "t.parquet").inputs[1] == data.inputs[1]


def test_a_dry_run_prints_kinds_columns_and_notes(tmp_path, capsys):
    FRAME.to_csv(tmp_path / "t.csv", sep=";", decimal=",")
    assert main(["train", "--table", str(tmp_path / "t.csv"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "  caption  tfidf 28, encoder tfidf\n" in printed
    assert "  table    table 3, encoder residual, from price, when, age\n" in printed
    assert "note: columns are separated by semicolons\n" in printed
    assert "note: decimal commas are read as points in price\n" in printed
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_thousands_separators_and_commas_in_text_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("a;b;text\n1.234,5;1,0;x, y\n-7;NA;z\n12;2,5;u, v, w\n")
    source = open_table(tmp_path / "t.csv")
    assert source.column("a") == ["1234.5", "-7", "12"]
    assert source.column("b") == ["1.0", "NA", "2.5"]
    assert source.column("text") == ["x, y", "z", "u, v, w"]


@pytest.mark.parametrize(
    ("name", "encoding", "message"),
    [
        ("t.csv", "latin-1", "row 17 is not UTF-8 .byte 0xe8., probably Latin-1: .* -f WINDOWS-1252 -t UTF-8 t.csv"),
        ("t.jsonl", "latin-1", "row 17 is not UTF-8"),
        ("t.csv", "utf-16", "its first line is not UTF-8, probably UTF-16: .* iconv -f UTF-16"),
    ],
)  # fmt: skip
def test_another_encoding_is_an_error_with_row_and_remedy(tmp_path, name, encoding, message):
    frame = FRAME.assign(caption=["plain\nlines" if i < 17 else f"crème {i}" for i in range(N)])
    write = {"t.csv": frame.to_csv, "t.jsonl": lambda path, **options: path.write_text(
        frame.to_json(orient="records", lines=True, force_ascii=False), encoding="latin-1")}[name]  # fmt: skip
    write(tmp_path / name, encoding=encoding)
    with pytest.raises(ValueError, match=message):
        Objects(tmp_path / name)


def test_files_of_arrays_with_an_index_and_decimal_commas(tmp_path):
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)).round(4), columns=list("xyz"))
    numbers.to_csv(tmp_path / "a.csv")
    numbers.to_csv(tmp_path / "b.csv", sep=";", decimal=",", index=False)
    numbers.to_csv(tmp_path / "c.tsv", sep="\t", index=False)
    data = Arrays([tmp_path / name for name in ("a.csv", "b.csv", "c.tsv")])
    views = data.arrays("train")[0]
    assert torch.equal(views[0], views[1])
    assert torch.equal(views[0], views[2])
    assert len(data.notes) == 1
    assert "is unnamed and numbers the rows; it is not used" in data.notes[0]
    (tmp_path / "a.csv").write_bytes("name\nMüller\n".encode("latin-1"))
    with pytest.raises(ValueError, match="row 0 is not UTF-8"):
        Arrays([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_workbooks_are_limited(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="damaged, or not a workbook"):
        Objects(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (2**26 + 1))
    with pytest.raises(ValueError, match="over 200 times its file size"):
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
    with pytest.raises(ValueError, match="row 0 has 2 cells, the first row 1 names"):
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


def test_the_word_infinity_is_text(tmp_path):
    content = "".join(f"{'infinity' if i == 7 else f'a sign {i}'},{i * i}\n" for i in range(20))
    (tmp_path / "t.csv").write_text(f"name,x\n{content}")
    assert Objects(tmp_path / "t.csv").view_names == ["name", "table"]
