"""Settings cannot name classes."""

import re
import sys

import pytest

from m3g.cli.command_line import read_settings
from m3g.training.loop.build import build_loss
from m3g.training.settings.config import Config


@pytest.mark.parametrize(
    "settings",
    [
        "loss_options: {solver: {class_path: evil_module.M}}",
        "loss_options: {cost: {class_path: evil_module.M, init_args: {}}}",
        "data_options: {views: [{class_path: evil_module.M}]}",
        "heads: {class_path: evil_module.M}",
    ],
)
def test_only_the_encoder_setting_can_name_a_class(tmp_path, monkeypatch, error_line, settings):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil_module.py").write_text("class M: ...\n")
    (tmp_path / "c.yaml").write_text(settings)
    assert "c.yaml must not have class_path, got 'evil_module.M'" in error_line("train", "--config", "c.yaml")
    assert "evil_module" not in sys.modules


def test_no_option_can_name_a_class(tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    line = error_line("train", "--loss_options.solver", "{class_path: evil_module.M}")
    assert "settings must not have class_path, got 'evil_module.M'" in line


def test_solvers_are_set_on_the_command_line(tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    words = ["--loss_options.solver.name", "sampled", "--loss_options.solver.rank", "512"]
    given = read_settings([*words, "--out", "run"])
    assert given.others == ["--out", "run"]
    solver = build_loss(Config.from_dict(given.settings)).solver
    assert (solver.name, solver.rank) == ("sampled", 512)
    for wrong, message in (
        (["--loss_options.solver.name", "magic"], "solver must be one of"),
        ([*words, "--loss_options.solver.colour", "red"], "solver 'sampled' must have only the options .*, got colour"),
        ([*words[:2], "--loss_options.solver.rank", "many"], "solver: rank must be a whole number, got 'many'"),
        (["--loss_options.normalize", "maybe"], "normalize must be true or false, got 'maybe'"),
    ):
        line = error_line("train", *wrong)
        assert re.search(message, line), line
