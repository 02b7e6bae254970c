"""Experiments on k augmentations of images, in miniature."""

import re

import pytest

from experiments.miniature import small_runs
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.output import published
from pictures import colours


@pytest.mark.parametrize("name", ["imagenet", "epsilon", "cost", "branches"])
def test_experiments_on_images_run_and_are_collected(sets, tmp_path, monkeypatch, name):
    monkeypatch.setitem(published.IMAGENET[4], "m3g", (1.23, 4.5))
    monkeypatch.setitem(published.COST[4], "csd", 1.23)

    def keep(spec):
        return spec.labels["k"] in (3, 4) if name != "branches" else spec.labels["students"] in (1, "leave one out")

    methods = {"imagenet": ["m3g", "infonce-pwe", "raw", "supervised"], "cost": ["cv", "csd"]}.get(name)
    text, _ = small_runs(name, sets, tmp_path, methods=methods, keep=keep)
    expected = {
        "imagenet": r"\| k = 4, published +\| 1.23 ± 4.5 +\| 75.26 ± 0.16",
        "cost": r"\| k = 4, published +\| 75.75 +\| 1.23 +\|",
        "epsilon": "epsilon 0.02",
        "branches": "leave one out",
    }
    assert re.search(expected[name], text)
    assert ("| references, accuracy %" in text) == (name == "imagenet")
    assert ("| no teacher, both directions" in text) == (name == "imagenet")
    assert ("validation %, by steps" in text) == (name == "imagenet")


def test_budget_has_as_many_images_per_step_for_every_number_of_views(sets, tmp_path):
    specs = find("budget").specs(Request(sets=["tinyimagenet"]))
    sizes = {spec.settings["config"]["data_options"]["batch_size"] * spec.labels["k"] for spec in specs}
    assert sizes == {96}
    ours = [spec for spec in specs if spec.labels["arm"] == "m3g"]
    assert all(spec.settings["config"]["views_per_step"] == spec.labels["k"] for spec in ours)

    def keep(spec):
        return spec.labels["k"] in (2, 6)

    text, _ = small_runs("budget", sets, tmp_path, methods=["m3g", "polyview"], keep=keep)
    assert re.search(r"\| accuracy % +\| m3g +\| polyview", text)
    assert re.search(r"\| k = 6, n = 16 +\|", text)
    assert "## On emoji" in text
    assert colours(tmp_path / "budget.png") >= 2
    assert colours(tmp_path / "emoji" / "budget.png") >= 2
