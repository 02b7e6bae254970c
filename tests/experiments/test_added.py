"""A user's own data set and loss in the benchmark, from one file: only their runs are new."""

import numpy as np
import pytest

from m3g.cli import main
from m3g.experiments.engine.spec import Request
from m3g.experiments.views import added
from m3g.experiments.views import grids as views_grids
from m3g.experiments.views import sets as view_sets
from m3g.experiments.views.runs import EXPERIMENT
from m3g.losses import registry

FILE = '''
import numpy as np
from m3g.experiments.views.added import data_set, view_loss
from m3g.losses import InfoNCEPairwise


@data_set("orchids", ["petal", "leaf"])
def orchids(source):
    with np.load(source / "orchids.npz") as stored:
        return {name: stored[name] for name in ("petal", "leaf", "label")}


@view_loss("mine", [{"loss_options.temperature": t} for t in (0.1, 0.2, 0.3, 0.4)], symmetric=True)
class Mine(InfoNCEPairwise):
    """InfoNCE under another name."""
'''


@pytest.fixture
def file(tmp_path):
    """The user's file; what it registers is gone after the test, and all else in its old order."""
    registered = (view_sets.SETS, views_grids.GRIDS, views_grids.FIXED, registry._LOSSES)
    before = [dict(entries) for entries in registered]
    (tmp_path / "mine.py").write_text(FILE)
    yield tmp_path / "mine.py"
    for entries, kept in zip(registered, before):
        entries.clear()
        entries.update(kept)


def test_only_what_is_new_is_left(file):
    before = {spec.id: spec for spec in EXPERIMENT.specs(Request())}
    added.load(file)
    after = {spec.id: spec for spec in EXPERIMENT.specs(Request())}
    assert before.keys() < after.keys()
    for run in after.keys() - before.keys():
        labels = after[run].labels
        assert "mine" in labels["arm"] or labels["data"] == "orchids"
    assert {s.labels["data"] for s in after.values() if s.labels["arm"] == "mine"} >= {"digits", "orchids"}


def test_the_command_trains_it(file, tmp_path, capsys):
    random = np.random.default_rng(0)
    objects = random.normal(size=(120, 4)).astype(np.float32)
    np.savez(tmp_path / "orchids.npz", petal=objects, leaf=objects[:, ::-1], label=(objects[:, 0] > 0).astype(int))
    view_sets.SETS.clear()
    command = ["reproduce", "views", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--methods", "mine"]
    assert main([*command, "--seeds", "1", "--add", str(file)]) == 0
    assert "1 measured runs of 1 arms on 1 data sets" in capsys.readouterr().out


def test_wrong_files_and_grids_are_refused(file, tmp_path):
    with pytest.raises(ValueError, match="--add must be a Python file that exists, got"):
        added.load(tmp_path / "none.py")
    with pytest.raises(ValueError, match="grid must have 4 settings"):
        added.view_loss("mine", [{}])
    with pytest.raises(ValueError, match="name must be one that no loss has yet, got 'm3g'"):
        added.view_loss("m3g", [{}] * 4)(None)
