"""`m3g audit`: the unreliable entries of a run."""

from __future__ import annotations

import csv
import re
import shutil

import pytest

from m3g.cli import main
from m3g.training.loop import fit
from m3g.training.mismatch.entries import read_entries
from training.mismatch.test_reliability import small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = small(
        data_options={"batch_size": 100, "views": ["fourier", "karhunen", "pixels"], "swapped": 0.1},
        encoder_options={"width": 32, "dropout": 0.0},
        heads={"embedding_size": 32, "hidden": 32},
        optim={"learning_rate": 5e-3},
        loop={"epochs": 6},
    )
    return fit.train(config, tmp_path_factory.mktemp("audited") / "run").path


def test_audit_lists_the_entries_of_the_run(run, tmp_path, capsys):
    entries = read_entries(run)
    assert [entry.log_odds for entry in entries] == sorted(entry.log_odds for entry in entries)
    capsys.readouterr()
    assert main(["audit", str(run)]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    listed = {line["view"] for line in lines}
    assert {"karhunen", "pixels"} <= listed  # views that determine their row
    doubtful = [entry for entry in entries if entry.log_odds < 0 and entry.view in listed]
    assert len(doubtful) > 20
    assert [(int(line["row"]), line["view"]) for line in lines] == [(entry.row, entry.view) for entry in doubtful]
    elsewhere = [line for line in lines if line["likely row"]]
    assert len(elsewhere) > len(lines) / 2
    assert all(float(line["cosine"]) >= float(line["cosine to own row"]) for line in elsewhere)
    assert main(["audit", str(run), "--count", "5", "--out", str(tmp_path / "five.csv")]) == 0
    assert "5 entries in" in capsys.readouterr().out
    with open(tmp_path / "five.csv", newline="") as file:
        five = [(int(line["row"]), line["view"]) for line in csv.DictReader(file)]
    assert five == [(entry.row, entry.view) for entry in entries[:5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "count must be"),
        (["--count", "many"], "count"),
        (["--rows", "5"], "--rows"),
        (["--out", "none/doubtful.csv"], "none"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line(run, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert main(["audit", str(run), *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out


def test_a_run_without_a_list_is_named(tmp_path, capsys):
    run = fit.train(small(mismatch=False, loop={"epochs": 1, "max_steps": 1}), tmp_path / "run")
    capsys.readouterr()
    assert main(["audit", str(run.path)]) == 2
    assert "run must have been trained with --mismatch" in capsys.readouterr().err
    assert main(["audit", str(tmp_path / "nothing")]) == 2


def test_an_empty_list_is_an_empty_table(run, tmp_path, capsys):
    clean = shutil.copytree(run, tmp_path / "run")
    (clean / "mismatch.csv").write_text("row,view,reliability,log_odds\n7,pixels,0.9,2.2\n")
    assert main(["audit", str(clean), "--out", str(tmp_path / "none.csv")]) == 0
    assert (tmp_path / "none.csv").read_text().startswith("row,view,reliability,likely row")
    assert "no entry is more likely wrong than correct" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7,odour,0.1,-2.2", "must list training rows and views of the run .*, got row 7, view 'odour'"),
        ("100000,pixels,0.1,-2.2", "got row 100000, view 'pixels'"),
        ("7,pixels,low,-2.2", "must have the columns row, view, reliability, log_odds, got .*'low'"),
        ("7,pixels", "must have the columns"),
    ],
)
def test_an_edited_list_is_reported_in_one_line(run, tmp_path, capsys, line, message):
    edited = shutil.copytree(run, tmp_path / "run")
    (edited / "mismatch.csv").write_text(f"row,view,reliability,log_odds\n{line}\n")
    assert main(["audit", str(edited)]) == 2
    error = capsys.readouterr().err.strip()
    assert re.search(message, error)
    assert len(error.splitlines()) == 1
