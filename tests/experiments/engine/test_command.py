"""The command `m3g reproduce`."""

import dataclasses
import json

import pytest

from m3g.cli import main
from m3g.experiments.engine.registry import find


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epsilon", "--methods", "m3g"], "--methods must be omitted for epsilon"),
        (["domainnet", "--plan", "--collect"], "must not be combined, except --plan with --slurm, got --plan"),
        (["domainnet", "--run", "0123"], "--run must be the id of one of the "),
        (["synergy", "--sets", "captions", "--methods", "supervised"], "--methods and --sets must select at least one"),
        (["domainnet", "--jobs", "0"], "--jobs must be a whole number of at least 1, got 0"),
        (["domainnet", "--seeds", "0"], "--seeds must be a whole number of at least 1, got 0"),
        (["domainnet", "--slurm", "--nodes", "0"], "--nodes must be at least 1, got 0"),
        (["domainnet", "--slurm", "--hours", "0"], "--hours must be"),
        (["overhead", "--scale", "paper"], "--scale must be one of 'laptop', got 'paper'"),
        (["imagnet"], "did you mean imagenet?"),
    ],
)
def test_wrong_arguments_leave_one_line_and_no_folder(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_command_plans_its_runs_once(tmp_path, monkeypatch):
    iterations, requests = find("iterations"), []

    def runs(request):
        requests.append(request)
        return iterations.runs(request)[:2]

    counted = dataclasses.replace(iterations, runs=runs)
    monkeypatch.setattr("m3g.experiments.engine.command.find", lambda name: counted)
    assert main(["reproduce", "iterations", "--out", str(tmp_path)]) == 0
    assert len(requests) == 1
