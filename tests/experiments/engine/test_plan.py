"""Steps, hours and losses printed by `m3g reproduce NAME --plan`, and its errors."""

import re

import pytest
import torch

import m3g
from m3g.experiments.engine.plan import SOLVER_STEPS, describe, loss_cost, num_steps, num_views
from m3g.experiments.engine.registry import NAMES, find
from m3g.experiments.engine.spec import Request
from m3g.training.settings.config import Config

PAPER = ("imagenet", "domainnet", "eeg", "epsilon", "cost", "branches")


def described(name, scale="laptop"):
    request = Request(scale=scale, seeds=1)
    return describe(find(name), find(name).specs(request), request, {})


@pytest.mark.parametrize("name", PAPER)
def test_every_run_of_the_paper_has_steps_and_hours(name):
    lines = described(name, "paper")
    steps = next(line for line in lines if line.startswith("steps"))
    assert int(re.findall(r"[\d,]+", steps)[0].replace(",", "")) > 10_000
    hours = next(line for line in lines if line.startswith("hours"))
    assert float(re.findall(r"about ([\d,]+)", hours)[0].replace(",", "")) >= 1
    assert ("one GPU" in hours) == (name == "eeg")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("overhead", "iterations")])
def test_every_training_on_a_laptop_has_steps(name):
    steps = next(line for line in described(name) if line.startswith("steps"))
    assert not steps.split()[1].startswith("0")


def test_a_folder_of_recordings_is_not_a_list_of_views():
    lines = described("eeg", "paper")
    assert any("m3g" in line and "k = 6, n = 16" in line for line in lines)
    assert num_views({"data_options": {"paths": "{data}/pretrain"}}) == 6
    assert num_views({"data_options": {"paths": ["a", "b", "c"]}}) == 3


def test_each_loss_is_listed_once_with_its_maximum_cost():
    lines = [line for line in described("imagenet", "paper") if line.startswith("loss")]
    assert len(lines) == 5
    assert any("m3g" in line and "k = 4, n = 64" in line for line in lines)


def test_many_views_are_compared_in_subsets():
    """Six views of 64 points are 7e10 tuples, so `m3g train` uses subsets of the views."""
    size, _ = loss_cost(Config(), 6, 64)
    assert size < 2**30
    one, two = (loss_cost(Config(views_per_step=3, subsets_per_step=number), 6, 64) for number in (1, 2))
    assert two == (2 * one[0], 2 * one[1])
    problem = m3g.CircularVariance()(torch.zeros(3, 64, Config().heads.embedding_size))
    assert one == (m3g.workload(problem).bytes, SOLVER_STEPS * m3g.workload(problem).flops)


def test_many_views_at_once_are_sampled():
    """Twelve views of 32 points are 1e18 tuples, which no exact solver stores."""
    size, flops = loss_cost(Config(views_per_step=12), 12, 32)
    assert size < 2**30
    assert flops < 1e12


def test_a_student_of_some_views_solves_one_problem():
    teacher = {"enabled": True}
    in_turn = loss_cost(Config.from_dict({"teacher": teacher}), 3, 8)
    once = loss_cost(Config.from_dict({"teacher": {**teacher, "student_views": 1}}), 3, 8)
    assert in_turn[0] == 3 * once[0]


def test_the_built_in_digits_take_as_many_steps_as_m3g_train():
    assert num_steps({}) == 420
