"""Files that are larger, deeper or wider than they look, or that lead elsewhere: one line, within seconds."""

import hashlib
import io
import json
import re
import struct
import time
import zipfile
import zlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from animals import rows, write_csv
from m3g.cli import main
from m3g.data.storage import limits
from m3g.training.runs.export import load


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bomb_png(side):
    """A PNG whose header declares side x side pixels, with next to no data."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def npy_header(shape):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return content.getvalue()


def bomb_npz(path, shape):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(npy_header(shape))
        member.write(bytes(10**6))


def distinct_keys(folder):
    (folder / "t.jsonl").write_text("".join(f'{{"k{i}": 1}}\n' for i in range(20_000)))


def repeated_keys(folder):
    """Few columns at a time, so that only the number of empty cells is too large."""
    (folder / "t.jsonl").write_text("".join(f'{{"k{i}": 1}}\n' for i in range(30_000)))


def equal_rows(folder):
    ones = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(10**7, np.int8)), pyarrow.array(["a"]))
    table = pyarrow.table({"a": ones, "b": ones})
    pyarrow.parquet.write_table(table, folder / "t.parquet", compression="zstd")
    assert (folder / "t.parquet").stat().st_size < 10**6


def deep(folder):
    (folder / "t.jsonl").write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")


def deep_cell(folder):
    cell = "[" * 100_000 + "]" * 100_000
    (folder / "t.csv").write_text(
        "a,b\n" + "".join(f'"[1, {i}]","[2, {i}]"\n' for i in range(30)) + f'"[1, 2]","{cell}"\n'
    )


def wide(folder):
    names = ",".join(f"c{i}" for i in range(10**6))
    (folder / "t.csv").write_text(names + "\n" + ",".join(["1"] * 10**6) + "\n")


def wide_jsonl(folder):
    (folder / "t.jsonl").write_text(json.dumps(dict.fromkeys(map(str, range(60_000)), 1)) + "\n")


TABLES = {
    "distinct keys": (distinct_keys, "t.jsonl", "20000 rows have 20000 columns, nearly all of them empty"),
    "more distinct keys": (repeated_keys, "t.jsonl", "30000 rows have 30000 columns, nearly all of them empty"),
    "equal rows": (equal_rows, "t.parquet", "10000000 rows in .* bytes, so nearly all rows are equal"),
    "a deep line": (deep, "t.jsonl", "nested too deeply"),
    "a deep cell": (deep_cell, "t.csv", "must be lists of numbers, .* in row 30"),
    "a wide csv": (wide, "t.csv", "it has 1000000 columns or more, and 50000 are the most"),
    "a wide line": (wide_jsonl, "t.jsonl", "it has 60000 columns or more"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_beyond_the_limits_is_refused_in_seconds(here, refused, case):
    make, name, message = TABLES[case]
    make(here)
    start = time.process_time()
    line = refused("train", "--table", name)
    assert time.process_time() - start < 10
    assert re.search(message, line), line
    assert not (here / "runs").exists()


@pytest.mark.parametrize("declared", [(10**12,), (10**9, 10**9)])
@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_an_array_that_declares_more_than_its_file_holds(here, refused, suffix, declared):
    if suffix == ".npz":
        bomb_npz("bomb.npz", declared)
    else:
        (here / "bomb.npy").write_bytes(npy_header(declared) + bytes(100))
    np.save("a.npy", np.ones((10, 2)))
    assert "damaged: an array of shape" in refused("train", "--views", "a.npy", f"bomb{suffix}")


def test_a_compressed_array_larger_than_the_memory(here, refused, monkeypatch):
    np.savez_compressed("big.npz", x=np.zeros((1000, 1000)))
    np.save("a.npy", np.ones((1000, 2)))
    monkeypatch.setattr(limits, "memory_limit", lambda device: 10**6)
    assert "an array of shape (1000, 1000) must be at most" in refused("train", "--views", "a.npy", "big.npz")


@pytest.mark.parametrize("side", [9_000, 12_000, 50_000])
def test_an_image_of_too_many_pixels_is_damaged(here, refused, side):
    """The first is cut short; of the second PIL only warns, the third it refuses."""
    write_csv(here, rows(here, 20, absent=False))
    (here / "3.png").write_bytes(bomb_png(side))
    words = ["--data_options.ignore", "[home]", "--data_options.batch_size", "8", "--loop.max_steps", "2"]
    line = refused("train", "--table", "objects.csv", *words)
    assert "images must be readable" in line
    assert ("pixels" in line) == (side > 9_000)


def test_a_safetensors_header_of_many_tensors(copy, refused):
    entry = '"t{}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    header = ("{" + ",".join(entry.format(i) for i in range(400_000)) + "}").encode()
    content = struct.pack("<Q", len(header)) + header
    (copy / "model.safetensors").write_bytes(content)
    model = json.loads((copy / "model.json").read_text())
    model["weights"] = hashlib.sha256(content).hexdigest()
    (copy / "model.json").write_text(json.dumps(model))
    start = time.process_time()
    with pytest.raises(ValueError, match=r"its header has .* bytes"):
        load(copy)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["model.json", "results.json"])
def test_deep_json_in_a_run(copy, refused, name):
    (copy / name).write_text("[" * 100_000 + "]" * 100_000)
    assert name in refused("report", copy)


def outside(folder, how):
    """A table whose fourth image leaves its folder in this way; gives the words that train on it."""
    inside = folder / "data"
    inside.mkdir()
    content = rows(inside, 20, absent=False)
    (inside / "3.png").rename(folder / "outside.png")
    if how == "..":
        content[3]["photo"] = "../outside.png"
    elif how == "absolute":
        content[3]["photo"] = str(folder / "outside.png")
    elif how == "link":
        (inside / "3.png").symlink_to("../outside.png")
    elif how == "linked folder":
        (inside / "sub").symlink_to("..")
        content[3]["photo"] = "sub/outside.png"
    else:
        content[3]["photo"] = "../not_there.png"
    write_csv(inside, content)
    options = ["--data_options.ignore", "[home]", "--data_options.batch_size", "8", "--dry-run"]
    return ["train", "--table", str(inside / "objects.csv"), *options]


@pytest.mark.parametrize("how", ["..", "absolute", "link", "linked folder", "nothing there"])
def test_paths_that_leave_the_folder_of_the_table(here, refused, how):
    line = refused(*outside(here, how))
    assert "view 'photo' must be files below" in line
    assert "in row 3" in line
    assert "--data_options.allow_outside true" in line


def test_paths_elsewhere_can_be_allowed(here):

    assert main([*outside(here, ".."), "--data_options.allow_outside", "true"]) == 0
