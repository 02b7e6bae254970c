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

pytestmark = pytest.mark.slow
VIEWS = ["a.npy", "x.npz:b", "s.npz", "m.mat:X{1}", "m.mat:X{2}", "c.csv", "d.tsv", "p.parquet", "j.json", "w.xlsx"]
FILES = {name.partition(":")[0] for name in VIEWS}
HEADERS = 1 + 2 + 5  # numpy arrays: in a.npy, a view and the labels in x.npz, the parts of the sparse matrix in s.npz
RUN = {f"run/{name}" for name in ("config.yaml", "environment.json", "model.json", "model.safetensors")}
ONCE = {"headers": HEADERS, "validations": 1, "networks": 1, "opens": 1}
TRAIN = f"train --views {' '.join(VIEWS)} --labels x.npz:label --config own.yaml --mismatch true {' '.join(QUICK)}"
NEW = "new.npz --views view0=a.npy view1=x.npz:b"
COMMANDS = {
    f"{TRAIN} --out run": ({*FILES, "own.yaml"}, {}),
    "embed run --out out.npz": (RUN | FILES, {}),
    f"embed run --out {NEW}": (RUN - {"run/environment.json"} | {"a.npy", "x.npz"}, {"headers": 2}),
    "audit run --count 1": (RUN | FILES, {}),
    "evaluate run": (RUN | FILES, {}),
    "search run --query 3": (RUN | FILES, {}),
    "search other --query view0=query.npy --top 2": (FILES, {"headers": HEADERS + 1}),
    "report run": (RUN | FILES, {"networks": 2}),  # the trained network, and an untrained one for comparison
    "compare run other": ({"run/results.json", "other/results.json"}, {"headers": 0, "validations": 2, "networks": 0}),
    "export run --out served --format torch": (RUN | FILES, {}),
    "push run me/mine": ({"run/model.json"}, {"headers": 0, "opens": 2}),  # every file is read, and copied for upload
    f"match {' '.join(VIEWS)}": (FILES, {"headers": HEADERS - 1, "validations": 0, "networks": 0}),
}
TABLES = {
    "comma.csv": lambda table, path: table.to_csv(path, index=False),
    "list.json": lambda table, path: table.to_json(path, orient="records"),
    "book.xlsx": lambda table, path: table.to_excel(path, index=False),
    "parts.parquet": lambda table, path: table.to_parquet(path),
}


def count(commands, folder, prepare):
    """Run commands in this process; write the calls of each, and how often it opens files below `folder` to read."""
    counts = collections.Counter()

    def add(name):
        name = os.path.relpath(name, folder)
        if not name.startswith(".."):
            counts[name] += 1

    def opened(event, args):
        if event == "open" and isinstance(args[0], (str, os.PathLike)) and args[1] == "r":
            add(args[0])

    def wrap(owner, name, before):
        function = getattr(owner, name)

        def wrapped(*args, **more):
            before(*args, **more)
            return function(*args, **more)

        setattr(owner, name, wrapped)

    def counted(owner, name, label):
        wrap(owner, name, lambda *_, **__: counts.update([label]))

    counted(config, "check", "validations")
    counted(fit, "check", "validations")
    counted(MultiViewNet, "__init__", "networks")
    counted(MLP, "__init__", "encoders")
    numpy_format = sys.modules[np.lib.format.open_memmap.__globals__["__name__"]]
    counted(numpy_format, "_read_array_header", "headers")
    # These read the headers of their files in C.
    wrap(parquet.ParquetFile, "__init__", lambda self, file, *_, metadata=None, **__: metadata or add(file))
    wrap(h5py.File, "__init__", lambda self, file, *_, **__: add(file))
    hub.upload = lambda folder, *_, **__: sorted(os.listdir(folder))  # no connection
    os.chdir(folder)
    sys.addaudithook(opened)
    results = {}
    for command in commands:
        counts.clear()
        code = main(command.split())
        results[command] = {**counts, "code": code}
        prepare(command)
    (folder / "counts.txt").write_text(json.dumps(results))


def counts_of(commands, folder, prepare):
    """Run commands, each followed by `prepare(command)`, in a process that ends with its audit hook."""
    process = forked.FORK_SERVER.Process(target=count, args=(commands, folder, prepare))
    process.start()
    process.join()
    assert process.exitcode == 0
    return json.loads((folder / "counts.txt").read_text())


def prepare_audit(command):
    """After the first embedding, write a list of one unreliable entry of a training row, and a copy of the run."""
    if command != "embed run --out out.npz":
        return
    with np.load("out.npz") as arrays:
        row = arrays["index"][arrays["split"] == "train"][0]
    with open("run/mismatch.csv", "w") as file:
        file.write(f"row,view,reliability,log_odds\n{row},view0,0.1,-2.2\n")
    shutil.copytree("run", "other")


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Counts of all commands on ten views of 60 objects, in all formats of arrays."""
    folder = tmp_path_factory.mktemp("once")
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((60, 5)) for _ in VIEWS]
    tables = [pd.DataFrame(array, columns=list("vwxyz")) for array in arrays]
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
    (folder / "own.yaml").write_text("data_options: {batch_size: 20}\nloss: infonce-pwe\n")
    return counts_of(list(COMMANDS), folder, prepare_audit)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_do_everything_once(counts, command):
    files, more = COMMANDS[command]
    expected, measured = {**ONCE, **more}, dict(counts[command])
    assert measured.pop("code") == 0
    assert {name: measured.pop(name, 0) for name in ("headers", "validations", "networks")} == {
        name: expected[name] for name in ("headers", "validations", "networks")
    }
    assert measured.pop("encoders", 0) == len(VIEWS) * expected["networks"]
    assert files <= set(measured)
    assert {name: number for name, number in measured.items() if number > expected["opens"]} == {}


def test_training_does_not_read_back_what_it_wrote(counts):
    assert not {"run/model.json", "run/model.safetensors"} & set(counts[f"{TRAIN} --out run"])


@pytest.fixture(scope="module")
def counts_of_tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    random = np.random.default_rng(0)
    commands = []
    for name, write in TABLES.items():
        table = pd.DataFrame({"x": random.standard_normal(60), "text": [f"word{i % 7} {i}" for i in range(60)]})
        table["vector"] = random.standard_normal((60, 3)).tolist() if name in ("list.json", "parts.parquet") else 1.5
        write(table, folder / name)
        options = "--data_options.batch_size 20 --loop.evaluate_every 0 --loop.epochs 1"
        commands += [f"train --table {name} {options} --out {name}-run", f"search {name}-run --query 3"]
        commands += [f"embed {name}-run --table {name} --out {name}.npz"]
    return counts_of(commands, folder, str)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_opened_once(counts_of_tables, name):
    by_command = {command: counts for command, counts in counts_of_tables.items() if f" {name}" in command}
    assert len(by_command) == 3
    for counts in by_command.values():
        assert counts.pop("code") == 0
        assert counts[name] == 1
        assert {file: number for file, number in counts.items() if file != "encoders" and number != 1} == {}
