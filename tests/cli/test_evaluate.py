"""The evaluation of a run with a held-out domain."""

import itertools
import json
from pathlib import Path

import numpy as np
from PIL import Image

from m3g.cli import main


def test_a_held_out_domain_is_evaluated(tmp_path, monkeypatch, capsys):
    """Two classes that differ in brightness in every domain; two domains for training, the third for testing."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for domain, kind, number in itertools.product("xyz", ("dark", "light"), range(10)):
        folder = tmp_path / "domains" / domain / kind
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 60, (16, 16, 3)) + 150 * (kind == "light")
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    options = ["--data_options.root", "domains", "--data_options.held_out", "z", "--data_options.size", "16"]
    options += ["--data_options.batch_size", "2", "--encoder_options.channels", "[8]", "--loop.epochs", "1"]
    assert main(["train", "--data", "domains", *options, "--loop.evaluate_every", "0"]) == 0
    output = capsys.readouterr().out
    assert "2 views (x, y)" in output
    assert "linear_held_out" in output
    assert json.loads(Path("runs/m3g-1/results.json").read_text())["numbers"]["linear_held_out"] > 0.9
