"""Files with excessive size, depth or width, or with links outside their folder."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from animals import rows, write_csv

DEEP = "[" * 100_000 + "]" * 100_000
IMAGES = ["--data_options.ignore", "[home]", "--data_options.batch_size", "8", "--loop.max_steps", "2"]


def bomb_png(side: int) -> bytes:
    """Return a PNG whose header declares side x side pixels, with hardly any data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def npy_header(shape: tuple[int, ...]) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return content.getvalue()


def bomb_npz(path: Path | str, shape: tuple[int, ...]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(npy_header(shape))
        member.write(bytes(10**6))


def mat_element(kind: int, content: bytes) -> bytes:
    """One data element of a `.mat` file of version 5."""
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def bomb_mat(path: Path | str, shape: tuple[int, int], *, declared: int | None = None, sparse: bool = False) -> None:
    """A compressed `.mat` file with a matrix x of this shape, nearly without data; `declared` bytes of content."""
    content = mat_element(6, struct.pack("<II", 5 if sparse else 6, 1)) + mat_element(5, struct.pack("<ii", *shape))
    content += mat_element(1, b"x")
    if sparse:
        content += mat_element(5, struct.pack("<i", 0)) + mat_element(5, bytes(4 * (shape[1] + 1)))
    content += mat_element(9, bytes(8))
    matrix = struct.pack("<II", 14, len(content) if declared is None else declared) + content
    packed = zlib.compress(matrix)
    Path(path).write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed)


def distinct_keys(folder: Path) -> None:
    (folder / "t.jsonl").write_text("".join(f'{{"k{i}": 1}}\n' for i in range(20_000)))


def more_distinct_keys(folder: Path) -> None:
    (folder / "t.jsonl").write_text("".join(f'{{"k{i}": 1}}\n' for i in range(30_000)))


def equal_rows(folder: Path) -> None:
    ones = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(10**7, np.int8)), pyarrow.array(["a"]))
    table = pyarrow.table({"a": ones, "b": ones})
    pyarrow.parquet.write_table(table, folder / "t.parquet", compression="zstd")
    assert (folder / "t.parquet").stat().st_size < 10**6


def deep(folder: Path) -> None:
    (folder / "t.jsonl").write_text('{"a": ' + DEEP + "}\n")


def deep_cell(folder: Path) -> None:
    (folder / "t.csv").write_text(
        "a,b\n" + "".join(f'"[1, {i}]","[2, {i}]"\n' for i in range(30)) + f'"[1, 2]","{DEEP}"\n'
    )


def wide(folder: Path) -> None:
    names = ",".join(f"c{i}" for i in range(10**6))
    (folder / "t.csv").write_text(names + "\n" + ",".join(["1"] * 10**6) + "\n")


def wide_jsonl(folder: Path) -> None:
    (folder / "t.jsonl").write_text(json.dumps(dict.fromkeys(map(str, range(60_000)), 1)) + "\n")


TABLES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "distinct keys": (distinct_keys, "t.jsonl", "20000 rows have 20000 columns, nearly all of them empty"),
    "more distinct keys": (more_distinct_keys, "t.jsonl", "30000 rows have 30000 columns, nearly all of them empty"),
    "equal rows": (equal_rows, "t.parquet", "10000000 rows in .* bytes, so nearly all rows are equal"),
    "a deep line": (deep, "t.jsonl", "nested too deeply"),
    "a deep cell": (deep_cell, "t.csv", "must be lists of numbers, .* in row 30"),
    "a wide csv": (wide, "t.csv", "it has at least 1000000 columns, which is more than 50000"),
    "a wide line": (wide_jsonl, "t.jsonl", "it has at least 60000 columns"),
}


def image(folder: Path, side: int) -> list[str]:
    """Return arguments for training on a table whose fourth image declares side x side pixels."""
    write_csv(folder, rows(folder, 20, missing=False))
    (folder / "3.png").write_bytes(bomb_png(side))
    return ["train", "--table", "objects.csv", *IMAGES]


ESCAPES = ("..", "absolute", "link", "linked folder", "nothing there")


def outside(folder: Path, how: str) -> list[str]:
    """Write a table whose fourth image is outside its folder; return the arguments for training on it."""
    inside = folder / "data"
    inside.mkdir()
    content = rows(inside, 20, missing=False)
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


def arrays(folder: Path, name: str) -> list[str]:
    """Return arguments for training on a valid array and one that declares more data than it contains."""
    np.save(folder / "a.npy", np.ones((60, 4), dtype=np.float32))
    if name == "bomb.npz":
        bomb_npz(folder / name, (10**12,))
    elif name == "bomb.npy":
        (folder / name).write_bytes(npy_header((10**9, 10**9)) + bytes(100))
    else:
        bomb_mat(folder / name, (10**6, 10**6), sparse=name == "sparse.mat")
    return ["train", "--views", "a.npy", name]


def table(folder: Path, case: str) -> list[str]:
    """Return arguments for training on one of `TABLES`."""
    make, name, _ = TABLES[case]
    make(folder)
    return ["train", "--table", name]


def every() -> dict[str, Callable[[Path], list[str]]]:
    """Return all files of this module by name; each function writes one and returns the arguments that read it."""
    cases: dict[str, Callable[[Path], list[str]]] = {}
    for case in TABLES:
        cases[f"a table, {case}"] = lambda folder, case=case: table(folder, case)  # type: ignore[misc]
    for side in (12_000, 50_000):
        cases[f"an image of {side} pixels a side"] = lambda folder, side=side: image(folder, side)  # type: ignore[misc]
    for how in ESCAPES:
        cases[f"a path that leaves the folder, {how}"] = lambda folder, how=how: outside(folder, how)  # type: ignore[misc]
    for name in ("bomb.npz", "bomb.npy", "bomb.mat", "sparse.mat"):
        cases[f"an array, {name}"] = lambda folder, name=name: arrays(folder, name)  # type: ignore[misc]
    return cases
