"""`m3g match` and `m3g search`, as a user calls them."""

import csv

import numpy as np
import pytest

from m3g.cli import main

QUICK = ["--loop.epochs", "4", "--encoder_options.width", "16", "--heads.hidden", "16", "--loop.evaluate_every", "0"]


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fails(arguments, capsys):
    assert main([str(word) for word in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("m3g: error: ")
    assert "\n" not in error
    return error


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Three noisy copies of 12 objects, shuffled, the third of them with four objects missing."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((12, 16))
    orders = {name: rng.permutation(12)[:n] for name, n in (("a", 12), ("b", 12), ("c", 8))}
    for name, order in orders.items():
        np.save(f"{name}.npy", objects[order] + 0.05 * rng.standard_normal((len(order), 16)))
    np.save("narrow.npy", rng.standard_normal((12, 5)))
    np.save("line.npy", rng.standard_normal(12))
    return orders


def test_match_writes_a_table_of_tuples(files, capsys):
    assert main(["match", "a.npy", "b.npy", "--out", "table.csv"]) == 0
    output = capsys.readouterr().out
    assert "100 % of the rows of a have a tuple of probability above 0.5" in output
    assert "probabilities are not calibrated: use --one-to-one --known FILE" in output
    rows = table("table.csv")
    assert list(rows[0]) == ["a", "b", "probability"]
    assert [files["a"][int(row["a"])] for row in rows] == [files["b"][int(row["b"])] for row in rows]
    assert all(float(row["probability"]) > 0.9 for row in rows)


def test_match_accepts_different_sizes(files, capsys):
    assert main(["match", "c.npy", "a.npy", "--alternatives", "2", "--out", "table.csv"]) == 0
    rows = table("table.csv")
    assert len(rows) == 24
    assert [int(row["a"]) for row in rows] == [i for i in range(12) for _ in range(2)]
    there = [row for row in rows[::2] if files["a"][int(row["a"])] in files["c"]]
    # A row of c has the mass of one and a half rows of a, which is sufficient for its partner.
    assert all(files["c"][int(row["c"])] == files["a"][int(row["a"])] for row in there)


def test_match_one_to_one_uses_no_row_twice(files, capsys):
    assert main(["match", "c.npy", "a.npy", "b.npy", "--one-to-one", "--out", "table.csv"]) == 0
    assert "8 tuples have a row of every file, 4 lack one" in capsys.readouterr().out
    rows = table("table.csv")
    for name in "abc":
        used = [int(row[name]) for row in rows if row[name]]
        assert sorted(used) == list(range(len(files[name])))


def test_match_does_not_match_rows_without_a_partner(files, capsys):
    rng = np.random.default_rng(1)
    np.save("d.npy", np.vstack([np.load("a.npy")[:9], rng.standard_normal((3, 16))]))
    assert main(["match", "a.npy", "d.npy", "--allow-unmatched", "--out", "table.csv"]) == 0
    assert "3 of 12 rows of a are unmatched\n3 of 12 rows of d are unmatched" in capsys.readouterr().out
    rows = table("table.csv")
    assert [row["d"] for row in rows] == [*map(str, range(9)), "", "", "", "9", "10", "11"]
    assert [row["a"] for row in rows[12:]] == ["", "", ""]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.npy"], "files must be k >= 2 files"),
        (["a.npy", "missing.npy"], "missing.npy"),
        (["a.npy", "narrow.npy"], "files must have the same number of columns"),
        (["a.npy", "line.npy"], "files must be tables of numbers (rows, columns)"),
        (["a.npy", "b.npy", "--epsilon", "-1"], "epsilon must be a positive"),
        (["a.npy", "b.npy", "--temperature", "-1"], "temperature must be a positive"),
        (["a.npy", "b.npy", "--temperature", "1", "--epsilon", "1"], "temperature must be None if epsilon is given"),
        (["a.npy", "b.npy", "--cost", "nonsense"], "cost must be one of"),
        (["a.npy", "b.npy", "--solver", "nonsense"], "solver must be one of"),
        (["a.npy", "b.npy", "--out", "table.txt"], "--out must be the name of a .csv file"),
        (["a.npy", "b.npy", "--out", "no/table.csv"], "there is no folder no"),
        (["a.npy", "b.npy", "--alternatives", "0"], "alternatives must be"),
    ],
)
def test_wrong_arguments_of_match_are_rejected(files, capsys, arguments, message):
    assert message in fails(["match", *arguments], capsys)


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
def here(trained, monkeypatch, tmp_path):
    monkeypatch.chdir(trained)
    return tmp_path


def test_search_by_rows(here, capsys):
    assert main(["search", "run", "--query", "3", "17", "--top", "4", "--out", str(here / "t.csv")]) == 0
    rows = table(here / "t.csv")
    assert [(row["query"], row["rank"]) for row in rows] == [(q, str(r)) for q in ("3", "17") for r in range(1, 5)]
    assert all(row["row"] != row["query"] for row in rows)
    assert {row["label"] for row in rows} <= {"<b>up</b>", "down"}
    assert "<b>up</b>" in capsys.readouterr().out or all(row["label"] == "down" for row in rows)


def test_a_row_finds_itself_if_requested(here):
    words = ["--itself", "true", "--top", "1", "--out", str(here / "t.csv")]
    assert main(["search", "run", "--query", "3", "8", *words]) == 0
    assert [row["row"] for row in table(here / "t.csv")] == ["3", "8"]
    assert [row["similarity"] for row in table(here / "t.csv")] == ["1.0000", "1.0000"]


def test_rows_and_files_of_the_same_views_find_the_same(here):
    x, z = np.load("x.npy"), np.load("z.npy")
    np.save(here / "x.npy", x[[3, 8]])
    np.save(here / "z.npy", z[[3, 8]])  # row 3 lacks z in the run too
    files = [f"x={here / 'x.npy'}", f"z={here / 'z.npy'}"]
    assert main(["search", "run", "--query", *files, "--out", str(here / "files.csv")]) == 0
    words = ["--by", "x", "z", "--itself", "true", "--out", str(here / "rows.csv")]
    assert main(["search", "run", "--query", "3", "8", *words]) == 0
    found = [[(row["row"], row["label"]) for row in table(here / name)] for name in ("files.csv", "rows.csv")]
    assert found[0] == found[1]


def test_search_in_one_view_and_split(here):
    words = ["--by", "x", "--in", "z", "--split", "train", "--top", "38", "--out", str(here / "t.csv")]
    assert main(["search", "run", "--query", "7", *words]) == 0
    assert not {row["row"] for row in table(here / "t.csv")} & {"3", "5", "7"}  # two lack the view, one is the query


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
        (["run", "--query", "3", "--top", "60"], "top must be at most 59"),
        (["run", "--query", "3", "--top", "0"], "--top must be a whole number"),
        (["run", "--query", "3", "--split", "some"], "--split must be one of"),
        (["run", "--query", "3", "--out", "t.txt"], "--out must be the name of a .csv file"),
    ],
)
def test_wrong_arguments_of_search_are_rejected(here, capsys, arguments, message):
    assert message in fails(["search", *arguments], capsys)


def test_known_objects_are_read_from_a_file(tmp_path, capsys, refused):
    rng = np.random.default_rng(0)
    objects = rng.standard_normal((30, 6))
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", objects + 0.8 * rng.standard_normal((30, 6)))
    files = [str(tmp_path / f"{name}.npy") for name in "ab"]
    np.save(tmp_path / "known.npy", np.stack([np.arange(12)] * 2, 1))
    printed = []
    for more in ([], ["--known", str(tmp_path / "known.npy")]):
        assert main(["match", *files, "--one-to-one", *more]) == 0
        printed.append(capsys.readouterr().out)
    line = "probabilities are not calibrated: use --known FILE with the rows of some objects\n"
    assert printed[0].replace(line, "") not in (printed[0], printed[1])
    assert "calibrated" not in printed[1]
    np.save(tmp_path / "half.npy", np.full((3, 2), 0.5))
    assert "known must be a table of row numbers" in refused(
        "match", *files, "--one-to-one", "--known", tmp_path / "half.npy"
    )
