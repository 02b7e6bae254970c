"""A command validates its settings, opens its run, reads its files and builds its network once."""

import collections
import json
import os
import sys

import numpy as np
import pytest

import forked
from fixtures import QUICK
from m3g.cli import main
from m3g.nets.encoders import MLP
from m3g.nets.multiview import MultiViewNet
from m3g.training.loop import fit
from m3g.training.settings import config

NEW = {"validation": 1, "network": 1, "encoder": 2, "a.npy": 1, "b.npy": 1, "labels.npy": 1, "own.yaml": 1}
OLD = {**NEW, "config.yaml": 1, "model.json": 1, "model.safetensors": 1, "own.yaml": 0}


def count(words, folder, path):
    """Run a command in this process, with an audit hook that counts opened files and wrappers that count calls."""
    counts = collections.Counter()

    def opened(event, args):
        if event == "open" and isinstance(args[0], str) and args[1] == "r":
            counts[os.path.basename(args[0])] += 1

    def counted(owner, name, label):
        function = getattr(owner, name)

        def wrapped(*args, **more):
            counts[label] += 1
            return function(*args, **more)

        setattr(owner, name, wrapped)

    counted(config, "check", "validation")
    counted(fit, "check", "validation")
    counted(MultiViewNet, "__init__", "network")
    counted(MLP, "__init__", "encoder")
    os.chdir(folder)
    sys.addaudithook(opened)
    code = main(words)
    path.write_text(json.dumps(counts))
    sys.exit(code)


def counts_of(folder, *words):
    process = forked.FORK_SERVER.Process(target=count, args=(words, folder, folder / "counts.json"))
    process.start()
    process.join()
    assert process.exitcode == 0
    return json.loads((folder / "counts.json").read_text())


def check_old(folder, *words):
    """Check the counts of a command that reads the finished run `run`."""
    counts = counts_of(folder, *words)
    assert {name: counts.get(name, 0) for name in OLD} == OLD, words[0]


@pytest.mark.slow
def test_commands_do_everything_once(tmp_path):
    for seed, name in enumerate(("a", "b")):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(seed).standard_normal((60, 5)))
    np.save(tmp_path / "labels.npy", np.arange(60) % 3)
    (tmp_path / "own.yaml").write_text("data_options: {batch_size: 20}\n")
    views = ["--views", "a.npy", "b.npy", "--labels", "labels.npy", "--config", "own.yaml"]
    counts = counts_of(tmp_path, "train", *QUICK, *views, "--mismatch", "true", "--out", "run")
    assert {name: counts.get(name, 0) for name in NEW} == NEW
    assert counts.get("model.json", 0) == 0  # written, not read back
    check_old(tmp_path, "embed", "run", "--out", "e.npz")
    with np.load(tmp_path / "e.npz") as arrays:
        row = arrays["index"][arrays["split"] == "train"][0]
    (tmp_path / "run" / "mismatch.csv").write_text(f"row,view,reliability,log_odds\n{row},a,0.1,-2.2\n")
    check_old(tmp_path, "audit", "run", "--count", "1")
    check_old(tmp_path, "evaluate", "run")
    check_old(tmp_path, "export", "run", "--out", "served", "--format", "torch")
