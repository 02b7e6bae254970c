"""Columns that are views, and columns that are not."""

import numpy as np
from PIL import Image

from frames import FRAME, N
from m3g.cli import main
from m3g.data import Objects


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
    for text in (
        "'Unnamed: 0' numbers the rows and is not used",
        "'sample_id' identifies the rows and is not used (set --view.sample_id.kind to keep it)",
        "'uuid' identifies the rows",
        "'number' numbers the rows",
        "'us' has dates with an ambiguous order of day and month",
        "'when' has dates, which are read as days since 1970-01-01",
        "'unit' is constant in all training rows",
        "'one' is constant in all training rows",
        "'photo' is the same file in all rows",
    ):
        assert sum(text in note for note in data.notes) == 1, (text, data.notes)
    assert len(data.notes) == 10  # the tenth states that few texts are read as TF-IDF
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


def test_the_view_of_the_remaining_columns_has_an_unused_name(tmp_path):
    random = np.random.default_rng(0)
    np.savetxt(tmp_path / "t.csv", random.normal(size=(30, 4)), delimiter=",", header="a,b,c,d", comments="")
    view = {"table": {"columns": ["a"]}, "numbers": {"columns": ["b"]}}
    data = Objects(tmp_path / "t.csv", view={name: {"kind": "table", **options} for name, options in view.items()})
    assert {name: recipe["columns"] for name, recipe in zip(data.view_names, data.inputs)} == {
        "table": ["a"], "numbers": ["b"], "numbers_2": ["c", "d"],
    }  # fmt: skip
