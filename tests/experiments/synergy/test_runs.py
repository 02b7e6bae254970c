"""Runs of `m3g reproduce synergy` and their grids."""

import pytest

from experiments.miniature import small_runs
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.synergy import runs
from m3g.experiments.synergy.runs import ARMS, MORE_TUNING_SEEDS, TEMPERATURES, UNTUNED_OF, demo


@pytest.mark.parametrize(("data", "splits"), [("digits", 3), ("digits-same", 1)])
def test_every_loss_has_the_same_grid_on_splits_that_no_test_uses(data, splits):
    specs = find("synergy").specs(Request(sets=[data]))
    for arm in ARMS:
        arm_specs = [spec for spec in specs if spec.labels["arm"] == arm]
        grid = [spec for spec in arm_specs if spec.labels["stage"] == "grid"]
        tests = [spec for spec in arm_specs if spec.labels["stage"] == "test"]
        temperatures = sorted(spec.labels["loss_options.temperature"] for spec in grid)
        assert temperatures == sorted(splits * TEMPERATURES)
        assert len(tests) == 5
        assert not {spec.labels["seed"] for spec in grid} & {spec.labels["seed"] for spec in tests}
        assert all([len(choice.evaluated_by) for choice in spec.candidates] == [splits] * 7 for spec in tests)


def test_a_set_requested_alone_uses_the_grid_of_its_family():
    specs = find("synergy").specs(Request(sets=["bits-100"], methods=["symile"]))
    ids = {spec.id for spec in specs}
    assert all(set(spec.needs) <= ids for spec in specs)


@pytest.mark.slow
def test_runs_of_the_built_in_digits_become_a_table(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "TEMPERATURES", TEMPERATURES[2:4])  # the grid is trained
    arms = ["m3g, product", "infonce-ave"]
    text, specs = small_runs("synergy", None, tmp_path, methods=arms, keep=lambda spec: spec.labels["data"] == "digits")
    grid = 2 * len(MORE_TUNING_SEEDS["digits"])
    assert len(specs) == len(arms) * (grid + 1) + len(set(arms) & set(UNTUNED_OF))
    assert "m3g, product" in text
    assert (tmp_path / "table.md").read_text(encoding="utf-8").startswith(f"{len(specs)} runs")


def test_demo_returns_one_accuracy_per_loss(tmp_path):
    shares = demo(tmp_path, steps=2)
    assert len(shares) == 5
    assert all(0 <= share <= 1 for share in shares.values())
