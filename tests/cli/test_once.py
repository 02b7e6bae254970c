"""A command validates its settings, reads its files and builds its network once."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fixtures import QUICK

# In a separate process, audit events count opened files and wrappers count calls.
PROGRAM = """
import collections, json, os, sys

counts = collections.Counter()

def hook(event, args):
    if event == "open" and isinstance(args[0], str) and args[1] == "r":
        counts[os.path.basename(args[0])] += 1

def counted(owner, name, label):
    function = getattr(owner, name)
    def wrapped(*args, **more):
        counts[label] += 1
        return function(*args, **more)
    setattr(owner, name, wrapped)

from m3g.cli import main
from m3g.nets.encoders import MLP
from m3g.nets.multiview import MultiViewNet
from m3g.training.loop import fit
from m3g.training.settings import config

counted(config, "check", "validation")
counted(fit, "check", "validation")
counted(MultiViewNet, "__init__", "network")
counted(MLP, "__init__", "encoder")
sys.addaudithook(hook)
code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(counts, file)
sys.exit(code)
"""
NEW = {"validation": 1, "network": 1, "encoder": 2, "a.npy": 1, "b.npy": 1, "labels.npy": 1, "own.yaml": 1}
OLD = {**NEW, "config.yaml": 1, "model.json": 1, "model.safetensors": 1, "own.yaml": 0}


def counts_of(folder, *words):
    command = [sys.executable, "-c", PROGRAM, str(folder / "counts.json"), *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads((folder / "counts.json").read_text())


@pytest.mark.slow
def test_train_evaluate_and_embed_do_everything_once(tmp_path):
    for seed, name in enumerate(("a", "b")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).standard_normal((60, 5)))
    np.save(tmp_path / "labels.npy", np.arange(60) % 3)
    (tmp_path / "own.yaml").write_text("data_options: {batch_size: 20}\n")
    views = ["--views", "a.npy", "b.npy", "--labels", "labels.npy", "--config", "own.yaml"]
    for words, expected in (
        (["train", *QUICK, *views, "--out", "run"], NEW),
        (["evaluate", "run"], OLD),
        (["embed", "run", "--out", "e.npz"], OLD),
    ):
        counts = counts_of(tmp_path, *words)
        assert {name: counts.get(name, 0) for name in expected} == expected, words[0]
        assert words[0] != "train" or counts.get("model.json", 0) == 0  # written, not read back
