"""Runs at the paper's scale."""

import pytest

from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import OnlyTrained, Request
from m3g.experiments.runner import full
from m3g.training.settings.config import Config


def test_paper_arms_have_the_papers_options():
    specs = find("imagenet").specs(Request(scale="paper", seeds=1))
    by_arm = {spec.labels["arm"]: spec.settings["config"] for spec in specs}
    assert by_arm["m3g"]["loss_options"] == {"epsilon": 0.2}
    assert by_arm["m3g, Algorithm 2"]["loss_options"] == {"epsilon": 0.2, "cost": "cv-algorithm2"}
    assert by_arm["infonce-ave"]["loss_options"] == {"renormalize": False}
    assert by_arm["byol-ave"]["loss_options"] == {"renormalize": False}
    assert by_arm["m3g"]["heads"]["weight_std"] == 0.02
    rates = {
        name: find(name).specs(Request(scale="paper", seeds=1))[0].settings["config"]["optim"]["reference_batch"]
        for name in ("imagenet", "domainnet")
    }
    assert rates == {"imagenet": 2048, "domainnet": 2048}


def test_only_the_first_process_removes_a_run_without_checkpoint(tmp_path, monkeypatch):
    """Processes that removed the same folder together would fail."""
    folder = tmp_path / "run"
    folder.mkdir()
    existed = []
    monkeypatch.setattr(full, "train", lambda config, run, resume: existed.append((run.exists(), resume)))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(OnlyTrained):
        full.trained(Config(), folder)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="must be"):  # the stand-in wrote no network
        full.trained(Config(), folder)
    assert existed == [(True, False), (False, False)]
