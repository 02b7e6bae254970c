"""Malicious files and names: an error of one line, no import, no access outside the folder."""

import json
import re
import shutil

import numpy as np
import pytest

from fixtures import QUICK
from m3g.cli import main


def test_a_deeply_nested_model_is_rejected(copy, error_line):
    (copy / "model.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "model.json must be a file written by m3g train" in error_line("evaluate", "run")


@pytest.mark.parametrize(
    "command", [["train", "--resume", "run"], ["evaluate", "run"], ["embed", "run", "--out", "e.npz"]]
)
@pytest.mark.parametrize("place", ["checkpoints", "plots", "results.json", "metrics.csv"])
def test_targets_of_links_in_a_run_are_not_changed(copy, tmp_path, error_line, command, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in (".x.tmp", "last.ckpt"):
        (outside / name).write_text("mine")
    inside = copy / place
    if inside.is_dir():
        shutil.rmtree(inside)
        inside.symlink_to(outside)
    else:
        inside.unlink()
        inside.symlink_to(outside / "last.ckpt")
    assert f"run/{place} is one: replace it" in error_line(*command)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {".x.tmp": "mine", "last.ckpt": "mine"}


def test_an_extra_cell_in_the_metrics_is_rejected(copy, error_line):
    text = (copy / "metrics.csv").read_text().splitlines()
    (copy / "metrics.csv").write_text("\n".join([*text[:-1], text[-1] + ",7"]) + "\n")
    for command in (["evaluate", "run"], ["train", "--resume", "run"]):
        assert f"metrics.csv must have at most {len(text[0].split(','))} numbers in each row" in error_line(*command)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--encoder_options.width", "1000000"], "the network's weights must be at most .* GiB, got .* GiB"),
        (["--encoder_options.width", str(10**15)], "its weights are too many|weights must be at most .* GiB"),
        (["--heads.hidden", str(10**10)], "the network's weights must be at most .* GiB, got .* GiB"),
        (["--encoder_options.depth", str(10**9)], "depth must be at most 1000"),
        (["--data_options.num_workers", "10000"], "num_workers must be at most .* got 10000"),
    ],
)
def test_sizes_beyond_any_machine_are_rejected(tmp_path, monkeypatch, error_line, options, message):
    monkeypatch.chdir(tmp_path)
    line = error_line("train", *options)
    assert re.search(message, line), line
    assert list(tmp_path.iterdir()) == []


def test_a_view_of_a_billion_numbers_is_rejected(copy, error_line):
    model = json.loads((copy / "model.json").read_text())
    model["view_shapes"][0] = [10**9]
    model["encoder"]["width"] = 10**4
    (copy / "model.json").write_text(json.dumps(model))
    assert "the network's weights must be at most" in error_line("embed", "run", "--out", "e.npz")


def test_a_table_of_too_many_columns_is_rejected(tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((1, 2)))
    names = ",".join(f"c{i}" for i in range(300_000))
    (tmp_path / "wide.csv").write_text(names + "\n" + ",".join(["1"] * 300_000) + "\n")
    assert "it has at least 300000 columns" in error_line("train", "--views", "a.npy", "wide.csv")


def test_names_with_control_characters_are_rejected(finished, tmp_path, monkeypatch, error_line):
    monkeypatch.chdir(tmp_path)
    views = ["--views", finished / "a.npy", finished / "b.npy"]
    line = error_line("train", *views, "--data_options.view_names", r'["a", "\e[31mred"]')
    assert r"the views' names must be printable, got '\x1b[31mred'" in line
    assert r"a\x1b[31m.npy" in error_line("train", "--views", "a\x1b[31m.npy", "b.npy")
    assert list(tmp_path.iterdir()) == []


def test_names_may_look_like_formulas(finished, tmp_path, monkeypatch, capsys, rendered):
    monkeypatch.chdir(tmp_path)
    views = ["--views", str(finished / "a.npy"), str(finished / "b.npy"), "--data_options.batch_size", "20"]
    names = ["--data_options.view_names", r"['$\nonsense{$', '$x_$']"]
    assert main(["train", *QUICK, *views, *names, "--out", "run"]) == 0, capsys.readouterr().err
    assert (tmp_path / "run" / "plots" / "retrieval.png").exists()
