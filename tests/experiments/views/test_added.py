"""A user's own data set and loss in the benchmark, from one file: only their runs are new."""

import json

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


@view_loss("mine", [{"loss_options.temperature": t} for t in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)], symmetric=True)
class Mine(InfoNCEPairwise):
    """InfoNCE under another name."""
'''


@pytest.fixture
def file(tmp_path):
    """The file of the user; its registrations are removed after the test, and the order of the others is restored."""
    registered = (view_sets.SETS, views_grids.GRIDS, views_grids.FIXED, registry.LOSSES)
    before = [dict(entries) for entries in registered]
    (tmp_path / "mine.py").write_text(FILE)
    yield tmp_path / "mine.py"
    for entries, kept in zip(registered, before):
        entries.clear()
        entries.update(kept)


def test_only_runs_of_added_sets_and_losses_are_planned(file, tmp_path):
    before = {spec.id for spec in EXPERIMENT.specs(Request())}
    names = added.extend(str(file), None, tmp_path)
    assert names == {"orchids", "mine"}
    after = EXPERIMENT.specs(Request(only=names))
    assert not before & {spec.id for spec in after}
    assert before < {spec.id for spec in EXPERIMENT.specs(Request())}
    for spec in after:
        assert "mine" in spec.labels["arm"] or spec.labels["data"] == "orchids"
    assert {s.labels["data"] for s in after if s.labels["arm"] == "mine"} >= {"digits", "orchids"}


def test_the_command_trains_added_sets_and_losses(file, tmp_path, capsys):
    random = np.random.default_rng(0)
    objects = random.normal(size=(120, 4)).astype(np.float32)
    np.savez(tmp_path / "orchids.npz", petal=objects, leaf=objects[:, ::-1], label=(objects[:, 0] > 0).astype(int))
    command = ["reproduce", "views", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--methods", "mine"]
    assert main([*command, "--seeds", "1", "--sets", "orchids", "--add", str(file)]) == 0
    assert "1 measured runs of 1 arms on 1 data sets" in capsys.readouterr().out


def test_an_added_loss_requires_no_files(file, tmp_path, capsys):
    """The built-in digits are the data; sets without files are listed, one line each."""
    command = ["reproduce", "views", "--out", str(tmp_path / "out"), "--methods", "mine", "--seeds", "1"]
    assert main([*command, "--add", str(file), "--plan"]) == 0
    output = capsys.readouterr().out
    skipped = [line for line in output.splitlines() if line.startswith("skipped")]
    assert "skipped     scenes: --data must be the folder with its files, got no folder." in skipped
    assert not any("digits" in line for line in skipped)
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert {row["labels"]["data"] for row in plan} == {"digits", "digits-2"}
    assert {row["labels"]["arm"].split(",")[0] for row in plan} == {"mine"}
    (tmp_path / "none.py").write_text("")
    assert main([*command, "--add", str(tmp_path / "none.py"), "--plan"]) == 2
    assert "--add must be a file that uses data_set or view_loss" in capsys.readouterr().err


def test_invalid_files_and_grids_are_errors(file, tmp_path):
    with pytest.raises(ValueError, match="--add must be a Python file that exists, got"):
        added.extend(str(tmp_path / "none.py"), None, tmp_path)
    with pytest.raises(ValueError, match="grid must have 6 settings"):
        added.view_loss("mine", [{}])
    with pytest.raises(ValueError, match="name must not be the name of an existing loss, got 'm3g'"):
        added.view_loss("m3g", [{}] * 6)(None)
