"""Correct entries of weak views are not reported."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from m3g.costs import CircularVariance
from m3g.evaluation import Embedded
from m3g.training import build_data
from m3g.training.loop import fit
from m3g.training.mismatch import strength
from m3g.training.mismatch.audit import audit
from m3g.training.mismatch.entries import read_entries
from m3g.training.settings.config import Config, LoopSettings


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
    """Without the selection of views, about a tenth of the rows would be reported."""
    for swapped in (0.0, 0.05):
        options = {"paths": weak_view(tmp_path, seed=seed), "split_seed": seed, "seed": seed, "swapped": swapped}
        loop = LoopSettings(epochs=20, evaluate_every=0, accelerator="cpu")
        config = Config(data="arrays", data_options=options, mismatch=True, loop=loop)
        run = fit.train(config, tmp_path / f"run{swapped}")
        doubtful = [entry for entry in read_entries(run.path) if entry.log_odds < 0]
        data = build_data(config)
        index = data.datasets["train"].index
        listed, remark = audit(run.path)
        reported = {entry.row for entry, _ in listed}
        if not swapped:
            assert len({entry.row for entry in doubtful}) > 0.05 * len(index)
            assert len(reported) <= 0.01 * len(index)
            assert "entries of category are not listed" in remark
        else:
            wrong = data.swapped_from != torch.arange(len(index))
            swapped_entries = {(int(index[i]), data.view_names[l]) for l, i in wrong[:3].nonzero().tolist()}
            correct = {(entry.row, entry.view) for entry, _ in listed} & swapped_entries
            assert len(correct) > 0.5 * len(swapped_entries)
            assert len(listed) - len(correct) <= 0.01 * len(index)


def test_a_view_with_many_intermediate_entries_is_not_reported(monkeypatch):
    held_out = Embedded(torch.zeros(3, 400, 3))
    fractions = []
    for fraction in (0.05, 0.1, 0.05):
        pi = torch.zeros(400)
        pi[: int(400 * fraction)] = 0.3
        fractions.append(pi)
    monkeypatch.setattr(strength, "more_similar", lambda points, mask, cost: fractions)
    kept = strength.reported_views(held_out, torch.tensor([0.13, 0.13, 0.04]), CircularVariance())
    assert kept.tolist() == [True, False, False]  # the third has fewer unreliable entries than intermediate ones
