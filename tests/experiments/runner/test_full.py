"""Runs at the paper's scale."""

from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request


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
