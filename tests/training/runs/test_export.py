"""Damaged, foreign and untrusted networks are not loaded."""

import json

import pytest
import torch

import m3g
from m3g.training.loop import fit
from m3g.training.runs.export import load
from m3g.training.runs.files import write_text
from training.loop.test_module import small


def test_class_paths_in_a_run_are_limited(tmp_path):
    run = fit.train(small(loop={"epochs": 1}), tmp_path / "run")
    content = json.loads(run.model.read_text())
    content["encoder"] = {"class_path": "os.system", "init_args": {"command": f"touch {tmp_path / 'trace'}"}}
    write_text(run.model, json.dumps(content))
    with pytest.raises(ValueError, match=r"class_path must be a class of .*trust=True"):
        m3g.load(run.path)
    with pytest.raises(ValueError, match="class_path must be"):
        m3g.load(run.path, trust=True)
    assert not (tmp_path / "trace").exists()


def test_damaged_and_foreign_models_are_errors(tmp_path):
    run = fit.train(small(loop={"epochs": 1}), tmp_path / "run")
    whole = run.weights.read_bytes()
    run.weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged or belongs to another network"):
        m3g.load(run.path)
    run.weights.write_bytes(whole)
    run.model.write_text("{}")
    with pytest.raises(ValueError, match="damaged or of another kind"):
        m3g.load(run.path)
    run.model.unlink()
    with pytest.raises(ValueError, match="finish the training first"):
        m3g.load(run.path)


def test_two_loads_of_one_run_scale_their_inputs_independently(tmp_path):
    run = fit.train(small(loop={"epochs": 1}), tmp_path / "run")
    unscaled = load(run)
    scaled = load(run, scaled=True)
    assert (unscaled.scaled, scaled.scaled) == (False, True)
    assert all(one is other for one, other in zip(unscaled.parameters(), scaled.parameters(), strict=True))
    unscaled.scaled = True
    views = [torch.randn(5, *shape) for shape in unscaled.view_shapes]
    torch.testing.assert_close(unscaled(views), scaled(views), rtol=0, atol=0)
