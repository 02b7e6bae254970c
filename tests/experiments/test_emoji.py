"""Unseen vendors of emoji: the runs and the table."""

import numpy as np
import pytest
import torch

from experiments.miniature import small_runs
from m3g.experiments import emoji
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request


@pytest.fixture
def folder(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (5, 40, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "emoji_5vendors_32.npz", X=images, domains=np.array(emoji.VENDORS))
    return tmp_path


def test_every_arm_has_the_grid_of_its_kind_and_all_vendors():
    specs = find("emoji").specs(Request())
    ids = {spec.id for spec in specs}
    assert all(set(spec.needs) <= ids for spec in specs)
    for arm in emoji.ARMS:
        arm_specs = [spec for spec in specs if spec.labels["arm"] == arm]
        grid = [spec for spec in arm_specs if spec.labels["stage"] == "grid"]
        assert len(grid) == (4 if arm.startswith(("byol", "vicreg")) else 9)
        assert all(spec.labels["unseen"] == emoji.TUNED_ON for spec in grid)
        tests = {(spec.labels["unseen"], spec.labels["seed"]) for spec in arm_specs if spec.labels["stage"] == "test"}
        assert tests == {(vendor, seed) for vendor in emoji.VENDORS for seed in range(4)}


def test_a_point_belongs_to_the_nearest_mean():
    means = [torch.eye(4), torch.eye(4)]
    assert emoji.nearest_mean(torch.eye(4), means) == 1.0
    assert emoji.nearest_mean(torch.eye(4).roll(1, 0), means) == 0.0


@pytest.mark.slow
def test_runs_become_a_table_with_intervals_over_vendors(folder, tmp_path):
    arms = ["m3g", "infonce-ave", "infonce-pwe, untuned at 0.5", "raw"]
    text, _ = small_runs(
        "emoji", folder, tmp_path / "out", methods=arms, keep=lambda spec: spec.labels["seed"] in (0, emoji.TUNING_SEED)
    )
    assert any(line.split()[1:5] == ["m3g", "|", "infonce-ave", "|"] for line in text.splitlines() if "|" in line)
    assert "untuned at 0.5" in text
    assert (tmp_path / "out" / "emoji.png").is_file()
