"""`m3g search` in a run that was trained on a table: queries by value, names, pages, the cache, the index."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import m3g
from m3g.cli import main
from m3g.evaluation.search import search
from m3g.training.runs import collection as module
from m3g.training.runs.folder import Run


@pytest.fixture
def run_path(coloured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return coloured / "run"


def search_rows(run, *words, out="t.csv"):
    assert main(["search", str(run), "--top", "5", "--out", out, "--query", *words]) == 0
    with open(out, newline="") as file:
        return list(csv.DictReader(file))


def test_a_value_of_any_view_finds_the_object_it_describes(run_path, tmp_path):
    Image.new("RGB", (30, 20), (250, 10, 10)).save("mine.png")
    for number, query in enumerate(
        (["photo=mine.png"], ["name=red & <b>thing</b> 7"], ["photo=mine.png", "weight=0.4"])
    ):
        rows = search_rows(run_path, *query, out=f"{number}.csv")
        assert list(rows[0]) == ["query", "rank", "row", "similarity", "id", "photo", "name"]
        assert len(rows) == 5
        assert sum(row["name"].startswith("red") for row in rows) >= 4
        assert all(row["photo"] == f"{row['row']}.png" and row["id"] == f"k{int(row['row']) ** 2}" for row in rows)


def test_values_of_several_views_form_one_query(run_path):
    Image.new("RGB", (12, 12), (0, 0, 250)).save("blue.png")
    rows = search_rows(run_path, "photo=blue.png", "name=blue & <b>thing</b> 3")
    net = m3g.load(run_path)
    query = net.embed({"photo": "blue.png", "name": "blue & <b>thing</b> 3"})
    every = module.collection(Run(run_path))
    expected = search(query.embeddings, every.embeddings, query_mask=query.mask, mask=every.mask, top=5)
    assert [int(row["row"]) for row in rows] == every.index[expected.indices[0]].tolist()


def test_a_page_has_thumbnails_and_escapes_names(run_path):
    Image.new("RGB", (12, 12), (255, 255, 255)).save("white.png")
    assert main(["search", str(run_path), "--query", "photo=white.png", "--top", "3", "--out", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.count('<img alt="" src="data:image/jpeg;base64,') == 4  # the query and three rows
    assert '<h2>photo: <img alt=""' in page
    assert "<b>thing</b>" not in page
    assert "&lt;b&gt;thing&lt;/b&gt;" in page
    assert "default-src 'none'" in page


def test_printed_columns_can_be_selected(run_path, error_line):
    assert main(["search", str(run_path), "--query", "3", "--show", "weight", "--top", "2", "--out", "w.csv"]) == 0
    assert Path("w.csv").read_text().splitlines()[0] == "query,rank,row,similarity,weight"
    assert "--show must be one of" in error_line("search", run_path, "--query", "3", "--show", "none")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (["photo=none.png"], "view 'photo' must be files that exist, got 'none.png'"),
        (["table=3"], "--query must name the columns of view 'table' (weight), as in COLUMN=VALUE"),
        (["name=a", "name=b"], "--query must be one value per view, got two for 'name'"),
        (["weight=heavy"], "finite numbers in column 'weight'"),
        (["colour=red"], "view of --query must be one of 'name', 'photo', 'weight', got 'colour'"),
        (["photo="], "--query must have a value for 'photo', got none"),
        (["3", "--top", "999"], "--top must be at most"),
    ],
)
def test_invalid_values_are_errors(run_path, error_line, query, message):
    assert message in error_line("search", run_path, "--query", *query)


def test_narrow_terminals_show_whole_names(run_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    search_rows(run_path, "3")
    assert "…" not in capsys.readouterr().out


def test_a_stored_collection_is_searched_without_lightning(run_path):
    search_rows(run_path, "3")
    program = (
        "import sys; from m3g.cli import main; "
        f"assert main(['search', {str(run_path)!r}, '--query', 'weight=0.4', '--top', '2']) == 0; "
        "sys.exit('lightning' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_the_index_is_used_if_requested(run_path, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    exact = search_rows(run_path, "3")
    assert search_rows(run_path, "3", "--approximate", out="many.csv") == exact
    assert list((tmp_path / "cache" / "m3g" / "indices").iterdir())
    assert "WARNING" not in "".join(capfd.readouterr())  # of faiss, about few points
