"""The runs of `m3g reproduce views`."""

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from experiments.miniature import small_runs
from m3g.evaluation import Embedded
from m3g.experiments.engine.spec import Request, place_files
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.views import runs as views
from m3g.experiments.views import scores as views_scores
from m3g.experiments.views import sets as view_sets
from m3g.experiments.views.grids import TEMPERATURE
from m3g.experiments.views.metrics import recall
from m3g.experiments.views.scores import BATCH
from pictures import colours


@pytest.fixture
def sets(monkeypatch):
    """Two custom sets: one with labels and missing views, one of classes in groups."""
    monkeypatch.setattr(view_sets, "SETS", {})
    monkeypatch.setattr(views, "SETS", view_sets.SETS)
    monkeypatch.setattr(views_scores, "SETS", view_sets.SETS)

    @view_sets.data_set("mine", ["a", "b", "c"])
    def mine(source):
        return dict(np.load(source / "mine.npz"))

    @view_sets.data_set("classes", ["a", "b", "c", "d", "e"], groups=True, by_class=True)
    def classes(source):
        return dict(np.load(source / "classes.npz"))

    @view_sets.data_set("plain", ["a", "b"], labels=False)
    def plain(source):
        return dict(np.load(source / "mine.npz"))

    return view_sets.SETS


def write(folder):
    random = np.random.default_rng(0)
    label = np.arange(150) % 3
    hidden = np.eye(3)[label] + 0.3 * random.normal(size=(150, 3))
    views_ = {
        name: (hidden @ random.normal(size=(3, width)) + 0.1 * random.normal(size=(150, width))).astype(np.float32)
        for name, width in (("a", 6), ("b", 4), ("c", 9), ("d", 5), ("e", 7))
    }
    np.savez(folder / "classes.npz", label=label, group=np.repeat(np.arange(10), 15), **views_)
    views_["b"][::7] = np.nan
    np.savez(folder / "mine.npz", label=label, **views_)


@pytest.mark.filterwarnings("ignore:mcca requires batches")  # which are small in a miniature
def test_runs_are_planned_executed_and_collected(sets, tmp_path):
    write(tmp_path)

    def keep(spec):
        data, arm = spec.labels["data"], spec.labels["arm"]
        if arm in ("gram", "mcca"):
            return data == "mine"
        return data != "plain" or arm in ("m3g", "infonce-pwe", "linear-mcca")

    methods = [
        "m3g",
        "infonce-pwe",
        "infonce-ave",
        "byol-ave",
        "gram",
        "mcca",
        "raw",
        "pca",
        "linear-mcca",
        "supervised",
    ]
    text, specs = small_runs("views", tmp_path, tmp_path / "out", methods=methods, keep=keep)
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} == {spec.id for spec in specs}
    for row in rows:
        if row["labels"]["stage"] == "grid":  # settings are chosen without the test rows
            assert set(row["metrics"]) <= {"recall", "linear_mean", "moved", "validation"}
        elif "m3g" in row["labels"]["arm"] and row["labels"]["data"] != "plain":
            assert set(row["metrics"]["absent"]) == {"0", "0.3", "0.5", "0.7"}
            assert "loss_options.temperature" in row["chosen"]
            assert row["chosen"].keys() <= {"loss_options.temperature", BATCH}
            assert len(row["metrics"]["subsets"]) == len(sets[row["labels"]["data"]].views)
    assert "| supervised" in text
    assert "missing in training" in text
    assert "Friedman" in text
    for name in ("ranks", "heat", "missing", "front"):
        assert colours(tmp_path / "out" / f"{name}.png") >= 2


def test_m3g_compares_all_views_at_once():
    specs = views.EXPERIMENT.specs(Request(seeds=1, sets=["proteins", "3sources"], methods=["m3g"]))
    assert {spec.settings["config"]["views_per_step"] for spec in specs} == {12, 3}
    tuned = [set(spec.labels) for spec in specs if spec.labels["stage"] == "grid" and "," not in spec.labels["arm"]]
    assert tuned
    assert all(TEMPERATURE in labels for labels in tuned)


def test_canonical_readout_aligns_a_rotated_view():
    random = torch.Generator().manual_seed(0)
    train, test = (normalize(torch.randn(n, 6, generator=random), dim=-1) for n in (200, 50))
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=random))[0]
    embedded = {name: Embedded(torch.stack([x, x @ rotation, -x])) for name, x in (("train", train), ("test", test))}
    assert recall(embedded["test"], by_class=False) < 0.5
    assert recall(views.read_out(embedded)["test"], by_class=False) == 1


def test_the_first_runs_are_those_of_the_main_losses():
    specs = views.EXPERIMENT.specs(Request())
    arms = list(dict.fromkeys(spec.labels["arm"] for spec in specs))
    assert arms[: len(views.MAIN) + len(views.BASELINES)] == [*views.MAIN, *views.BASELINES]
    assert len({spec.id for spec in specs}) == len(specs)


@pytest.mark.parametrize("loss", ["infonce-pwe", "m3g", "byol-ave"])
def test_stacked_training_is_the_training_of_the_plain_network(sets, tmp_path, loss):
    write(tmp_path)
    for data in ("mine", "classes"):
        view_sets.prepare(data, tmp_path, tmp_path / "data")
        settings = place_files({"config": views.config(data, loss, seed=0, steps=5)}, tmp_path / "data")
        fits = [fit_quickly(config_of(settings), tmp_path / "w", stacked=stacked) for stacked in (False, True)]
        (plain, rows), (stacked, _) = fits
        inputs = rows.arrays("test")[0]
        assert torch.allclose(plain.net(inputs), stacked.net(inputs), atol=1e-4)
