"""The benchmark of k-view losses, end to end in miniature, and what it measures against literal versions."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from experiments.miniature import small_runs
from m3g.evaluation import Embedded, Probe
from m3g.evaluation.clustering import agreement
from m3g.experiments.engine.spec import Request, place_files
from m3g.experiments.output.ranks import critical_difference, groups
from m3g.experiments.runner.full import config_of
from m3g.experiments.runner.quick import fit_quickly
from m3g.experiments.views import runs as views
from m3g.experiments.views import scores as views_scores
from m3g.experiments.views import sets as view_sets
from m3g.experiments.views.metrics import absent, few_labels, moved_probe, recall, recall_from_rest
from m3g.experiments.views.scores import BATCH
from pictures import colours


@pytest.fixture
def sets(monkeypatch):
    """Two sets of the user's own, each one entry: one with labels and absent views, one of classes in groups."""
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


def test_end_to_end(sets, tmp_path):
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
        if row["labels"]["stage"] == "grid":  # nothing of the test rows is known when a setting is chosen
            assert set(row["metrics"]) <= {"recall", "linear_mean", "moved", "validation"}
        elif "m3g" in row["labels"]["arm"] and row["labels"]["data"] != "plain":
            assert set(row["metrics"]["absent"]) == {"0", "0.3", "0.5", "0.7"}
            assert "loss_options.epsilon" in row["chosen"]
            assert row["chosen"].keys() <= {"loss_options.epsilon", BATCH}
            assert len(row["metrics"]["subsets"]) == len(sets[row["labels"]["data"]].views)
    assert "| supervised" in text
    assert "absent in training" in text
    assert "Friedman" in text
    for name in ("ranks", "heat", "absent", "front"):
        assert colours(tmp_path / "out" / f"{name}.png") >= 2


def test_every_loss_has_a_grid_of_one_size():
    from m3g import losses

    assert set(views.GRIDS) == set(losses.available()) | set(views.LOSS_OF)
    assert {len(changes) for changes in views.GRIDS.values()} == {4}
    for name, changes in views.GRIDS.items():
        for change in changes:
            own = {option.removeprefix("loss_options."): v for option, v in change.items() if "loss_options" in option}
            losses.build(views.LOSS_OF.get(name, name), **own, **views.FIXED.get(name, {}))


def test_a_view_that_was_rotated_is_read_out_in_the_space_of_the_others():
    random = torch.Generator().manual_seed(0)
    train, test = (normalize(torch.randn(n, 6, generator=random), dim=-1) for n in (200, 50))
    turn = torch.linalg.qr(torch.randn(6, 6, generator=random))[0]
    seen = {name: Embedded(torch.stack([x, x @ turn, -x])) for name, x in (("train", train), ("test", test))}
    assert recall(seen["test"], by_class=False) < 0.5
    assert recall(views.read_out(seen)["test"], by_class=False) == 1


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
        found = [fit_quickly(config_of(settings), tmp_path / "w", stacked=stacked) for stacked in (False, True)]
        (plain, rows), (stacked, _) = found
        inputs = rows.arrays("test")[0]
        assert torch.allclose(plain.net(inputs), stacked.net(inputs), atol=1e-4)


def _points(k=3, n=12, d=4, seed=0, mask=None):
    random = torch.Generator().manual_seed(seed)
    views = normalize(torch.randn(k, n, d, generator=random, dtype=torch.float64), dim=-1)
    return Embedded(views, labels=torch.arange(n) % 3, mask=mask)


MASK = torch.rand(3, 12, generator=torch.Generator().manual_seed(3)) > 0.3
MASK[0] |= ~MASK.any(0)


@pytest.mark.parametrize("mask", [None, MASK])
def test_recall_is_the_literal_count(mask):
    points = _points(mask=mask)
    here = points.present
    for by_class in (False, True):
        pairs = []
        for l, m in itertools.permutations(range(3), 2):
            right = []
            for i in range(12):
                if here[l, i] and here[m, i]:
                    close = [j for j in range(12) if here[m, j]]
                    best = max(close, key=lambda j: float(points.views[l][i] @ points.views[m][j]))
                    right.append(points.labels[best] == points.labels[i] if by_class else best == i)
            pairs.append(np.mean(right))
        assert recall(points, by_class=by_class) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("mask", [None, MASK])
def test_recall_from_the_rest_is_the_literal_count(mask):
    points = _points(mask=mask)
    here, found = points.present, []
    for m in range(3):
        right = []
        for i in range(12):
            others = [l for l in range(3) if l != m and here[l, i]]
            if not here[m, i]:
                continue
            rest = sum((points.views[l][i] for l in others), torch.zeros(4, dtype=torch.float64))
            close = [j for j in range(12) if here[m, j]]
            right.append(bool(others) and max(close, key=lambda j: float(rest @ points.views[m][j])) == i)
        found.append(np.mean(right))
    assert recall_from_rest(points, by_class=False) == pytest.approx(np.mean(found))


def test_few_labels_is_the_nearest_class_mean():
    points = _points(n=30)
    x, labels = points.views[0], points.labels
    scores = []
    for draw in range(5):
        order = torch.randperm(30, generator=torch.Generator().manual_seed(draw)).tolist()
        centres = []
        for c in range(3):
            rows = [i for i in order if labels[i] == c][:2]
            centres.append(normalize(sum(x[i] for i in rows), dim=-1))
        scores.append(np.mean([int(torch.stack(centres).mv(x[i]).argmax()) == labels[i] for i in range(30)]))
    assert few_labels(x, labels, x, labels, shots=2, seed=0) == pytest.approx(np.mean(scores))


def test_moved_probe_needs_a_common_space():
    labels = torch.arange(60) % 3
    same = normalize(torch.eye(3)[labels] + 0.01 * torch.randn(60, 3), dim=-1)
    for other, expected in ((same, 1.0), (same[:, [1, 2, 0]], 0.0)):
        points = Embedded(torch.stack([same, other]), labels=labels)
        assert moved_probe(points, points) == expected


def test_with_nothing_absent_nothing_changes():
    points = _points(n=40)
    found = absent(points, points, 0.0, by_class=False, seed=0)
    assert found["recall_rest"] == pytest.approx(recall_from_rest(points, by_class=False))
    assert found["linear"] == Probe(points.mean, points.labels, kind="ridge").accuracy(points.mean, points.labels)


def test_agreement_of_clusters_is_the_best_renaming():
    random = np.random.default_rng(0)
    clusters, classes = random.integers(0, 4, (2, 40))
    best = max(np.mean(np.array(names)[clusters] == classes) for names in itertools.permutations(range(4)))
    assert agreement(clusters, classes).accuracy == pytest.approx(best)


def test_critical_difference_and_groups():
    assert critical_difference(10, 14) == pytest.approx(3.164 * np.sqrt(10 * 11 / (6 * 14)), abs=0.01)  # Demsar's table
    assert groups({"a": 1.0, "b": 3.0, "c": 3.5}, 1.0) == [["a"], ["b", "c"]]
