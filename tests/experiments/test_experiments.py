"""Every experiment end to end, in miniature, on generated sets in the formats of the real ones."""

import json
import re

import pytest

from experiments.miniature import small_runs, write_sets
from m3g.cli import main
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.engine.store import Store
from m3g.experiments.output import published
from pictures import colours


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    write_sets(folder)
    return folder


def test_domainnet_runs_and_is_collected(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(published.DOMAINNET["sketch"], "m3g", (1.23, 4.5))

    def keep(spec):
        labels = spec.labels
        return labels["held_out"] in ("display", "sketch") and labels["control"] in ("", "no teacher")

    methods = ["m3g", "byol-ave", "raw", "supervised"]
    text, specs = small_runs("domainnet", sets, tmp_path, methods=methods, keep=keep)
    assert "| display" in text
    assert re.search(r"references, unseen, accuracy % \| raw +\| supervised", text)
    assert "no teacher" in text
    assert "chosen" in text
    assert re.search(r"\| sketch +\| 21.6 ± 0.6 \|.*\| 1.23 ± 4.5 +\|", text)
    assert colours(tmp_path / "fonts_pairs.png") >= 2
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert {row["id"] for row in rows} == {spec.id for spec in specs}
    tuned = [row for row in rows if row["labels"]["arm"] == "m3g" and row["labels"]["stage"] == "test"]
    assert all(set(row["chosen"]) == {"loss_options.epsilon", "optim.learning_rate"} for row in tuned)


def test_eeg_runs_and_is_collected(sets, tmp_path, monkeypatch):
    monkeypatch.setitem(published.EEG["m3g, n = 16"], 1000, 1.23)

    def keep(spec):
        return spec.labels["arm"] in ("m3g, n = 16", "infonce-pwe, n = 64, untuned", "raw", "supervised")

    methods = ["m3g", "infonce-pwe", "raw", "supervised"]
    text, _ = small_runs("eeg", sets, tmp_path, methods=methods, keep=keep)
    assert len(re.findall(r"references, balanced accuracy % \| raw +\| supervised", text)) == 2
    assert "m3g, n = 16" in text
    assert re.search(r"\| m3g, n = 16 +\| 36.6 +\| 49.2 +\| 56.1 +\| 1.23 +\|", text)
    assert colours(tmp_path / "sleep.png") >= 2
    assert colours(tmp_path / "raw.png") >= 2


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


def test_iterations_newton_needs_fewer_steps_than_sinkhorn(tmp_path):
    text, _ = small_runs("iterations", None, tmp_path, keep=lambda spec: spec.labels["epsilon"] <= 0.1)
    steps = {}
    for line in (tmp_path / "results.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["metrics"]["converged"]
        steps.setdefault(row["labels"]["arm"], []).append(row["metrics"]["steps"])
    assert sum(steps["factored"]) < sum(steps["sinkhorn"])
    assert "Largest difference between the values" in text


def test_mismatch_runs_and_is_collected(tmp_path):
    text, specs = small_runs("mismatch", None, tmp_path, keep=lambda spec: spec.labels["share"] <= 0.1)
    assert len(specs) == 8
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    watched = [row["metrics"] for row in rows if row["labels"]["mismatch"] and row["labels"]["share"]]
    assert all({"auc", "among_first", "wrong_left_out", "right_left_out"} <= set(found) for found in watched)
    for part in ("swaps in the first 15%, median", "R@1, remaining loss", "with minus without mismatch"):
        assert part in text
    assert (tmp_path / "table.md").read_text() in text + "\n"
    assert colours(tmp_path / "mismatch.png") >= 2


def test_summary_is_one_page_of_what_is_finished(tmp_path, capsys):
    small_runs("iterations", None, tmp_path / "iterations", keep=lambda spec: spec.labels["k"] == 2, miniature=False)
    for scale, folder in (("laptop", "epsilon"), ("paper", "epsilon-paper")):
        store = Store(tmp_path / folder)
        for spec in find("epsilon").specs(Request(seeds=1, scale=scale, sets=["tinyimagenet", "imagenet"])):
            store.folder(spec.id).mkdir(parents=True)
            result = {"id": spec.id, "experiment": "epsilon", "labels": dict(spec.labels), "seconds": 1.0}
            store.save(spec.id, {**result, "metrics": {"test": 0.5}})
    assert main(["reproduce", "summary", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "summary.md").read_text()
    assert page.index("## epsilon") < page.index("## iterations")
    assert "](epsilon/epsilon.png)" in page
    assert page.count("18 runs, 18.0 seconds in total.") == 2
    assert page.index("## epsilon at the paper's scale") < page.index("](epsilon-paper/epsilon.png)")
    assert "## variants" not in page
    record = tmp_path / "variants"
    record.mkdir()
    (record / "results.jsonl").write_text(json.dumps({"id": "0", "experiment": "variants", "seconds": 2.0}) + "\n")
    (record / "table.md").write_text("1 run.\n\n## Points\n\n| stored table |\n")
    assert main(["reproduce", "summary", "--out", str(tmp_path)]) == 0
    assert "| stored table |" in (tmp_path / "summary.md").read_text()
    assert main(["reproduce", "summary", "--out", str(tmp_path / "nothing")]) == 2
    assert "contains no results" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["imagenet", "domainnet", "eeg", "epsilon", "cost", "branches"])
def test_the_papers_scale_is_planned(name, tmp_path, capsys):
    assert main(["reproduce", name, "--scale", "paper", "--plan", "--out", str(tmp_path), "--seeds", "1"]) == 0
    output = capsys.readouterr().out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert f"runs        {len(plan)}," in output
    assert len(list((tmp_path / "plan").glob("*.yaml"))) == len(plan)
    assert "operations per step" in output


def test_data_that_is_missing_is_named(tmp_path, capsys):
    out = ["--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["reproduce", "domainnet", "--plan", *out]) == 0
    output = capsys.readouterr().out
    assert "skipped     fonts: --data must be a folder that contains fonts_5styles_28.npz or fonts.npz" in output
    assert "data        missing" in output
    assert main(["reproduce", "domainnet", *out]) == 2
    assert "got none: see above" in capsys.readouterr().err
    assert main(["reproduce", "domainnet", "--collect", *out]) == 2
    assert main(["reproduce", "domainnet", "--run", "0123", *out]) == 2
    assert main(["reproduce", "domainnet", "--methods", "none", *out]) == 2
    assert main(["reproduce", "nothing"]) == 2


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
