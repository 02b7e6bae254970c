"""`m3g match`, as a user calls it."""

import numpy as np
import pytest

from fixtures import error_of, table
from m3g.cli import main


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
    np.save("gap.npy", np.full((12, 16), np.nan))
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
    paired = [row for row in rows[::2] if files["a"][int(row["a"])] in files["c"]]
    # A row of c has the mass of one and a half rows of a, which is sufficient for its partner.
    assert all(files["c"][int(row["c"])] == files["a"][int(row["a"])] for row in paired)


def test_match_one_to_one_uses_no_row_twice(files, capsys):
    assert main(["match", "c.npy", "a.npy", "b.npy", "--one-to-one", "--out", "table.csv"]) == 0
    assert "8 tuples have a row of every file, 4 do not" in capsys.readouterr().out
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
        (["a.npy", "b.npy", "--out", "table.txt"], "--out must be a file name with the ending .csv"),
        (["a.npy", "b.npy", "--out", "no/table.csv"], "there is no folder no"),
        (["a.npy", "b.npy", "--alternatives", "0"], "alternatives must be"),
        (["a.npy", "b.npy", "--one-to-one=yes"], "--one-to-one must have no value, got 'yes'"),
        (["a.npy", "gap.npy"], "files must have finite numbers, got NaN or inf in 'gap.npy'"),
        (["a.npy", "b.npy", "--known", "a.npy"], "--known must be used with --one-to-one or --allow-unmatched"),
    ],
)
def test_wrong_arguments_of_match_are_rejected(files, capsys, arguments, message):
    assert message in error_of(["match", *arguments], capsys)


def test_known_objects_are_read_from_a_file(tmp_path, capsys, error_line):
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
    np.save(tmp_path / "c.npy", np.roll(objects, 5, axis=0) + 0.8 * rng.standard_normal((30, 6)))
    rows = np.stack([np.arange(12), np.arange(12) + 5], 1)  # of a and c
    printed = []
    for head, columns in (("a,c", rows), ("c,a", rows[:, ::-1]), ("x,y", rows), ("x,y", rows[:, ::-1])):
        np.savetxt(tmp_path / "known.csv", columns, fmt="%d", delimiter=",", header=head, comments="")
        known = ["--known", str(tmp_path / "known.csv")]
        assert main(["match", files[0], str(tmp_path / "c.npy"), "--one-to-one", *known]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == printed[2] != printed[3]  # by name, or in the order of the files
    (tmp_path / "gaps.csv").write_text("a,b\n0,0\n1,\n2,2\n")
    np.save(tmp_path / "gaps.npy", [[0, 0], [1, -1], [2, 2]])
    printed = []
    for name in ("gaps.csv", "gaps.npy"):  # an empty cell is a missing row, as in the table of the command
        assert main(["match", *files, "--one-to-one", "--known", str(tmp_path / name)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    for content, message in (("0,30", "of view 1 from 0 to 29, or -1, got 30"), ("1e30,0", "row numbers, got 1e+30")):
        (tmp_path / "wrong.csv").write_text(f"a,b\n{content}\n")
        assert message in error_line("match", *files, "--one-to-one", "--known", tmp_path / "wrong.csv")
    np.save(tmp_path / "half.npy", np.full((3, 2), 0.5))
    assert "known must be a table of row numbers" in error_line(
        "match", *files, "--one-to-one", "--known", tmp_path / "half.npy"
    )
