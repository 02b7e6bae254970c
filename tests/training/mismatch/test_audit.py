"""`m3g audit`: the doubtful entries of a run, and the rows to which they may belong."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import m3g
from m3g.cli import main
from m3g.training import build_data
from m3g.training.loop import fit
from m3g.training.mismatch.audit import audit, find_partners
from m3g.training.mismatch.entries import Entry, read_entries
from m3g.training.settings.config import Config, LoopSettings
from training.mismatch.test_reliability import noisy_views, small


@settings(max_examples=8, deadline=None, derandomize=True)
@given(k=st.integers(3, 6), n=st.integers(20, 80), seed=st.integers(0, 100))
def test_partners_are_the_rows_that_the_entries_come_from(k, n, seed):
    views, swapped = noisy_views(k, n, 16, wrong=max(2, n // 20), seed=seed)
    truth, _ = noisy_views(k, n, 16, wrong=0, seed=seed)
    names, index = [f"view{l}" for l in range(k)], torch.arange(n) * 3 + 7
    places = [(l, i) for l, i in swapped.nonzero().tolist() if swapped[:, i].sum() == 1]
    entries = [Entry(int(index[i]), names[l], 0.1, -2.0) for l, i in places]
    found = find_partners(entries, views, ~swapped, index, names)
    right = 0
    for (l, i), partner in zip(places, found):
        origin = int((truth[l] - views[l, i]).norm(dim=-1).argmin())
        assert origin != i
        right += (
            partner is not None and partner.row == int(index[origin]) and partner.similarity > partner.own_similarity
        )
    assert right >= 0.9 * len(places)
    kept = [Entry(int(index[i]), names[0], 0.9, 2.0) for i in (~swapped.any(0)).nonzero().flatten().tolist()]
    alone = find_partners(kept, views, ~swapped, index, names)
    assert sum(partner is None for partner in alone) >= 0.9 * len(kept)


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
def test_wrong_arguments_are_one_line(run, tmp_path, monkeypatch, capsys, arguments, message):
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


def test_a_cost_finds_the_row_by_its_query():
    signs = torch.randn(2, 20, 16, generator=torch.Generator().manual_seed(0)).sign()
    views = torch.stack([*signs, signs.prod(0)])
    views[2, [3, 7]] = views[2, [7, 3]]
    trusted = torch.ones(3, 20, dtype=torch.bool)
    trusted[2, [3, 7]] = False
    entries = [Entry(3, "c", 0.1, -1.0), Entry(7, "c", 0.1, -1.0), Entry(5, "c", 0.9, 1.0)]
    found = find_partners(entries, views, trusted, torch.arange(20), ["a", "b", "c"], cost=m3g.MultilinearProduct())
    assert [None if one is None else one.row for one in found] == [7, 3, None]


def weak_view(tmp_path, *, seed):
    """Three views of 600 objects and a category that is independent of them for a third of the objects."""
    rng = np.random.default_rng(seed)
    objects = rng.standard_normal((600, 8))
    category = np.where(rng.random(600) < 0.3, rng.integers(0, 6, 600), objects[:, :6].argmax(1))
    views = [objects @ rng.standard_normal((8, 20)) + 0.3 * rng.standard_normal((600, 20)) for _ in range(3)]
    np.savez(tmp_path / "views.npz", a=views[0], b=views[1], c=views[2], category=np.eye(6)[category])
    return [f"{tmp_path / 'views.npz'}:{name}" for name in ("a", "b", "c", "category")]


@pytest.mark.parametrize("seed", [0, 1])
def test_clean_entries_of_a_weak_view_are_not_reported(tmp_path, capsys, seed):
    """Before views were selected, a tenth of the rows was reported."""
    for swapped in (0.0, 0.05):
        options = {"paths": weak_view(tmp_path, seed=seed), "split_seed": seed, "seed": seed, "swapped": swapped}
        loop = LoopSettings(epochs=20, evaluate_every=0, accelerator="cpu")
        config = Config(data="arrays", data_options=options, mismatch=True, loop=loop)
        run = fit.train(config, tmp_path / f"run{swapped}")
        doubtful = [entry for entry in read_entries(run.path) if entry.log_odds < 0]
        data = build_data(config)
        index = data.datasets["train"].index
        found, remark = audit(run.path)
        reported = {entry.row for entry, _ in found}
        if not swapped:
            assert len({entry.row for entry in doubtful}) > 0.05 * len(index)
            assert len(reported) <= 0.01 * len(index)
            assert "entries of category are not listed" in remark
        else:
            wrong = data.swapped_from != torch.arange(len(index))
            places = {(int(index[i]), data.view_names[l]) for l, i in wrong[:3].nonzero().tolist()}
            right = {(entry.row, entry.view) for entry, _ in found} & places
            assert len(right) > 0.5 * len(places)
            assert len(found) - len(right) <= 0.01 * len(index)
