"""A command validates its settings, opens its run and its input files, and builds its network once."""

import collections
import json
import os
import shutil
import sys

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from pyarrow import parquet

import forked
from fixtures import QUICK
from m3g.cli import main
from m3g.nets.encoders import MLP
from m3g.nets.multiview import MultiViewNet
from m3g.training.loop import fit
from m3g.training.runs import hub
from m3g.training.settings import config

VIEWS = ["a.npy", "x.npz:b", "s.npz", "m.mat:X{1}", "m.mat:X{2}", "c.csv", "d.tsv", "p.parquet", "j.json", "w.xlsx"]
LABELS = "x.npz:label"
FILES = {name.partition(":")[0] for name in VIEWS}
HEADERS = 1 + 2 + 5  # numpy arrays: of a.npy, x.npz and s.npz
RUN = {f"run/{name}" for name in ("config.yaml", "environment.json", "model.json", "model.safetensors")}
TABLES = ["t.csv", "t.tsv", "t.json", "t.jsonl", "t.xlsx", "t.parquet"]


def count(words, folder, path):
    """Run a command in this process; count calls and the files that are opened for reading below `folder`."""
    counts = collections.Counter()

    def opened(event, args):
        if event == "open" and isinstance(args[0], (str, os.PathLike)) and args[1] == "r":
            add(args[0])

    def add(name):
        name = os.path.relpath(name, folder)
        if not name.startswith(".."):
            counts[name] += 1

    def counted(owner, name, label):
        function = owner[name] if isinstance(owner, dict) else getattr(owner, name)

        def wrapped(*args, **more):
            if callable(label):
                label(*args, **more)
            else:
                counts[label] += 1
            return function(*args, **more)

        owner.__setitem__(name, wrapped) if isinstance(owner, dict) else setattr(owner, name, wrapped)

    counted(config, "check", "validation")
    counted(fit, "check", "validation")
    counted(MultiViewNet, "__init__", "network")
    counted(MLP, "__init__", "encoder")
    counted(np.lib.format.read_array_header_1_0.__globals__, "_read_array_header", "header")
    # These read the headers of their files in C.
    counted(parquet.ParquetFile, "__init__", lambda self, file, *_, metadata=None, **__: metadata or add(file))
    counted(h5py.File, "__init__", lambda self, file, *_, **__: add(file))
    hub.upload = lambda folder, *_, **__: sorted(os.listdir(folder))  # no connection
    os.chdir(folder)
    sys.addaudithook(opened)
    code = main([str(word) for word in words])
    path.write_text(json.dumps(counts))
    sys.exit(code)


def counts_of(folder, *words):
    process = forked.FORK_SERVER.Process(target=count, args=(words, folder, folder / "counts.json"))
    process.start()
    process.join()
    assert process.exitcode == 0
    return json.loads((folder / "counts.json").read_text())


def write_views(folder):
    """Write ten views of 60 objects in all formats of arrays."""
    random = np.random.default_rng(0)
    names = list("vwxyz")
    arrays = [random.standard_normal((60, 5)) for _ in VIEWS]
    tables = [pd.DataFrame(array, columns=names) for array in arrays]
    np.save(folder / "a.npy", arrays[0])
    np.save(folder / "query.npy", arrays[0][:3])
    np.savez(folder / "x.npz", b=arrays[1], label=np.arange(60) % 3)
    scipy.sparse.save_npz(folder / "s.npz", scipy.sparse.csr_matrix(np.abs(arrays[2])))
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = arrays[3:5]
    scipy.io.savemat(folder / "m.mat", {"X": cells})
    tables[5].to_csv(folder / "c.csv", index=False)
    tables[6].to_csv(folder / "d.tsv", sep="\t", decimal=",", index=False)
    tables[7].to_parquet(folder / "p.parquet")
    tables[8].to_json(folder / "j.json")
    tables[9].to_excel(folder / "w.xlsx", index=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with views in all formats and a run on them, and the counts of its training."""
    folder = tmp_path_factory.mktemp("once")
    write_views(folder)
    (folder / "own.yaml").write_text("data_options: {batch_size: 20}\nloss: infonce-pwe\n")
    words = ["--views", *VIEWS, "--labels", LABELS, "--config", "own.yaml", "--mismatch", "true", "--out", "run"]
    counts = counts_of(folder, "train", *QUICK, *words)
    counts_of(folder, "embed", "run", "--out", "e.npz")
    with np.load(folder / "e.npz") as arrays:
        row = arrays["index"][arrays["split"] == "train"][0]
    (folder / "run" / "mismatch.csv").write_text(f"row,view,reliability,log_odds\n{row},view0,0.1,-2.2\n")
    shutil.copytree(folder / "run", folder / "other")
    return folder, counts


def check(counts, files, *, headers=HEADERS, validations=1, networks=1, most=1):
    """Check the calls, and that every file was opened at most once, or `most` times; `files` were opened."""
    counts = dict(counts)
    calls = {name: counts.pop(name, 0) for name in ("validation", "network", "encoder", "header")}
    assert calls == {
        "validation": validations,
        "network": networks,
        "encoder": networks * len(VIEWS),
        "header": headers,
    }
    assert files <= set(counts)
    assert {name: number for name, number in counts.items() if number > most} == {}


@pytest.mark.slow
def test_training_does_everything_once(trained):
    _, counts = trained
    check(counts, {*FILES, "own.yaml"})
    assert counts.get("run/model.json", 0) == 0  # written, not read back


NO_DATA = {"headers": 0, "networks": 0}
COMMANDS = [
    ("embed run --out out.npz", RUN | FILES, {}),
    ("embed run --out new.npz --views view0=a.npy view1=x.npz:b", {"a.npy", "x.npz"}, {"headers": 2}),
    ("audit run --count 1", RUN | FILES, {}),
    ("evaluate run", RUN | FILES, {}),
    ("search run --query 3", RUN | FILES, {}),
    ("search other --query view0=query.npy --top 2", FILES, {"headers": HEADERS + 1}),
    ("report run", RUN | FILES, {"networks": 2}),  # the trained network and an untrained one for comparison
    ("compare run other", {"run/results.json", "other/results.json"}, {**NO_DATA, "validations": 2}),
    ("export run --out served --format torch", RUN | FILES, {}),
    ("push run me/mine", {"run/model.json"}, {"headers": 0, "most": 2}),  # every file is read, and copied for upload
    (" ".join(["match", *VIEWS]), FILES, {**NO_DATA, "headers": HEADERS - 1, "validations": 0}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "files", "options"), COMMANDS, ids=[words.split()[0] for words, *_ in COMMANDS])
def test_commands_do_everything_once(trained, words, files, options):
    folder, _ = trained
    check(counts_of(folder, *words.split()), files, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_opened_once(tmp_path, name):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"x": random.standard_normal(60), "text": [f"word{i % 7} {i}" for i in range(60)]})
    table["vector"] = random.standard_normal((60, 3)).tolist() if name in ("t.json", "t.jsonl", "t.parquet") else 1.5
    write = {
        "csv": lambda path: table.to_csv(path, index=False),
        "tsv": lambda path: table.to_csv(path, index=False, sep="\t", decimal=","),
        "json": lambda path: table.to_json(path, orient="records"),
        "jsonl": lambda path: table.to_json(path, orient="records", lines=True),
        "xlsx": lambda path: table.to_excel(path, index=False),
        "parquet": table.to_parquet,
    }
    write[name[2:]](tmp_path / name)
    options = ["--data_options.batch_size", "20", "--loop.evaluate_every", "0", "--out", "run"]
    for words in (
        ["train", "--table", name, "--loop.epochs", "1", *options],
        ["search", "run", "--query", "3"],
        ["embed", "run", "--out", "e.npz"],
        ["embed", "run", "--table", name, "--out", "new.npz"],
    ):
        counts = counts_of(tmp_path, *words)
        assert {file: number for file, number in counts.items() if file != "encoder" and number != 1} == {}, words
        assert counts[name] == 1
