"""`m3g search` in a run that was trained on arrays: queries by row and by file."""

import numpy as np
import pytest

from fixtures import error_of, table
from m3g.cli import main
from m3g.training import Run, build_data

QUICK = ["--loop.epochs", "4", "--encoder_options.width", "16", "--heads.hidden", "16", "--loop.evaluate_every", "0"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with three views of 60 objects, of which two lack a view, and a run on them."""
    folder = tmp_path_factory.mktemp("search")
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((60, 6))
    for name, d in (("x", 7), ("y", 8), ("z", 9)):
        view = objects @ rng.standard_normal((6, d))
        if name == "z":
            view[[3, 5]] = np.nan
        np.save(folder / f"{name}.npy", view.astype(np.float32))
    np.save(folder / "labels.npy", np.where(objects[:, 0] > 0, "<b>up</b>", "down"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--labels", "labels.npy", "--data_options.batch_size", "40", "--out", "run"]
        assert main(["train", "--views", "x.npy", "y.npy", "z.npy", *QUICK, *words]) == 0
    return folder


@pytest.fixture
def out_folder(trained, monkeypatch, tmp_path):
    monkeypatch.chdir(trained)
    return tmp_path


def test_search_by_rows(out_folder, capsys):
    assert main(["search", "run", "--query", "3", "17", "--top", "4", "--out", str(out_folder / "t.csv")]) == 0
    rows = table(out_folder / "t.csv")
    assert [(row["query"], row["rank"]) for row in rows] == [(q, str(r)) for q in ("3", "17") for r in range(1, 5)]
    assert all(row["row"] != row["query"] for row in rows)
    assert {row["label"] for row in rows} <= {"<b>up</b>", "down"}
    assert "<b>up</b>" in capsys.readouterr().out or all(row["label"] == "down" for row in rows)


def test_a_query_row_is_among_its_results_if_requested(out_folder):
    words = ["--itself", "true", "--top", "1", "--out", str(out_folder / "t.csv")]
    assert main(["search", "run", "--query", "3", "8", *words]) == 0
    assert [row["row"] for row in table(out_folder / "t.csv")] == ["3", "8"]
    assert [row["similarity"] for row in table(out_folder / "t.csv")] == ["1.0000", "1.0000"]


def test_queries_by_row_and_by_file_have_equal_results(out_folder):
    x, z = np.load("x.npy"), np.load("z.npy")
    np.save(out_folder / "x.npy", x[[3, 8]])
    np.save(out_folder / "z.npy", z[[3, 8]])  # row 3 lacks z in the run too
    files = [f"x={out_folder / 'x.npy'}", f"z={out_folder / 'z.npy'}"]
    assert main(["search", "run", "--query", *files, "--out", str(out_folder / "files.csv")]) == 0
    words = ["--by", "x", "z", "--itself", "true", "--out", str(out_folder / "rows.csv")]
    assert main(["search", "run", "--query", "3", "8", *words]) == 0
    results = [[(row["row"], row["label"]) for row in table(out_folder / name)] for name in ("files.csv", "rows.csv")]
    assert results[0] == results[1]


def test_search_in_one_view_and_split(out_folder):
    words = ["--by", "x", "--in", "z", "--split", "train", "--top", "38", "--out", str(out_folder / "t.csv")]
    assert main(["search", "run", "--query", "7", *words]) == 0
    assert not {row["row"] for row in table(out_folder / "t.csv")} & {
        "3",
        "5",
        "7",
    }  # two lack the view, one is the query


def test_a_query_outside_the_searched_split_excludes_no_object(out_folder):
    run = Run("run")
    data = build_data(run.open(), run)
    query, test = int(data.datasets["train"].index[0]), data.datasets["test"].index.tolist()
    words = ["--split", "test", "--top", str(len(test)), "--out", str(out_folder / "t.csv")]
    assert main(["search", "run", "--query", str(query), *words]) == 0
    assert sorted(int(row["row"]) for row in table(out_folder / "t.csv")) == sorted(test)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "--query", "3"], "there is none at missing"),
        (["run"], "query"),
        (["run", "--query", "sixty"], "--query must be row numbers of the data or VIEW=VALUE, got 'sixty'"),
        (["run", "--query", "60"], "--query must be rows of the data, from 0 to 59, got 60"),
        (["run", "--query", "3", "--by", "w"], "--by must be one of 'x', 'y', 'z', got 'w'"),
        (["run", "--query", "3", "--by", "z"], "--by must be a view that the query has, but row 3 has none of z"),
        (["run", "--query", "3", "--in", "w"], "--in must be one of"),
        (["run", "--query", "w=x.npy"], "view of --query must be one of"),
        (["run", "--query", "x=y.npy"], "view 'x' must have rows of shape (7,), got (8,)"),
        (["run", "--query", "x=none.npy"], "--query must be files that exist"),
        (["run", "--query", "x=x.npy", "3"], "--query must be either rows or VIEW=VALUE"),
        (["run", "--query", "x=x.npy", "--by", "x"], "--by must be used with rows"),
        (["run", "--query", "z=z.npy"], "every row must have at least one view, got none in row 3"),
        (["run", "--query", "3", "--top", "60"], "--top must be at most 59"),
        (["run", "--query", "3", "--top", "0"], "--top must be a whole number"),
        (["run", "--query", "3", "--split", "some"], "--split must be one of"),
        (
            ["run", "--query", "3", "--out", "t.txt"],
            "--out must be a file name with the ending .csv or .html, got 't.txt'",
        ),
    ],
)
def test_wrong_arguments_of_search_are_rejected(out_folder, capsys, arguments, message):
    assert message in error_of(["search", *arguments], capsys)
