"""Reading of arrays from Matlab files (`.mat`, versions 4 to 7), selected in Matlab's notation, as in `X{2}'`."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.io
import scipy.sparse

from m3g.data.storage.limits import check_memory

Variables: TypeAlias = "dict[str, np.ndarray | scipy.sparse.spmatrix]"  # by name
COMPRESSED = 15  # type code of a compressed variable
NOTATION = re.compile(r"(?P<name>\w+)(\{(?P<cell>\d+)\})?(?P<transposed>')?$")


def select(stored: Variables, key: str | None, file: Path, name: str) -> np.ndarray:
    """Return an array of a `.mat` file: `X`, the second entry `X{2}` of a cell array, or the transpose `X'`.

    Sparse matrices are converted to dense, and a matrix with one column to a vector.
    """
    names = ", ".join(_choices(stored))
    if key is None and len(stored) != 1:
        raise ValueError(
            f"{name} must name one array of {str(file)!r}, got none: choose one with '{file}:NAME', where NAME is one "
            f"of {names}."
        )
    selection = NOTATION.match(key or next(iter(stored)))
    if selection is None or selection["name"] not in stored:
        raise ValueError(f"{name} must name an array of {str(file)!r} ({names}), got {key!r}.")
    array = stored[selection["name"]]
    if selection["cell"] is not None:
        if array.dtype != object or not 1 <= int(selection["cell"]) <= array.size:
            raise ValueError(f"{name} must name an array of {str(file)!r} ({names}), got {key!r}.")
        array = array.ravel(order="F")[int(selection["cell"]) - 1]  # Matlab counts along columns
    if hasattr(array, "toarray"):  # sparse
        array = array.toarray()
    if array.dtype == object:
        raise ValueError(
            f"{name} must name one entry of the cell array in {str(file)!r} ({names}), got {key or 'all'!r}."
        )
    if selection["transposed"]:
        array = array.T
    return array.squeeze(1) if array.ndim == 2 and array.shape[1] == 1 else array


def load_matlab(file: Path) -> Variables:
    """Return the variables of a `.mat` file; arrays larger than the memory are rejected before decompression."""
    with open(file, "rb") as content:
        if content.read(8) == b"\x89HDF\r\n\x1a\n" or b"MATLAB 7.3" in content.read(64):
            raise ValueError("it has version 7.3: save it with -v7")
        try:
            check_memory("the content", sum(_unpacked_sizes(content)))
            content.seek(0)
            for _, shape, kind in scipy.io.whosmat(content):
                width = re.search(r"8|16|32|64", kind) if "int" in kind else None
                check_memory(f"an array of shape {shape}", math.prod(shape) * (int(width[0]) // 8 if width else 8))
            content.seek(0)
            loaded: Variables = scipy.io.loadmat(content)
        except ValueError:
            raise
        except Exception as error:  # scipy raises TypeError, KeyError, zlib.error and others for damaged files
            raise OSError(f"damaged: {error}") from error
    return {variable: value for variable, value in loaded.items() if not variable.startswith("__")}


def _unpacked_sizes(content: BufferedReader) -> Iterator[int]:
    """Yield the declared size in bytes of each compressed variable of a version 5 file, including its cells."""
    content.seek(0)
    order = {b"IM": "<", b"MI": ">"}.get(content.read(128)[126:])
    while order is not None and len(tag := content.read(8)) == 8:
        kind, size = struct.unpack(f"{order}II", tag)
        start = content.tell()
        if kind == COMPRESSED:
            begin = zlib.decompressobj().decompress(content.read(min(size, 4096)), 8)
            if len(begin) == 8:
                yield struct.unpack(f"{order}II", begin)[1]
        content.seek(start + size)


def _choices(stored: Variables) -> list[str]:
    """Return the names of the arrays, and of the entries of cell arrays."""
    names = []
    for variable, value in stored.items():
        cells = value.size if isinstance(value, np.ndarray) and value.dtype == object else 0
        names += [f"{variable}{{{i + 1}}}" for i in range(cells)] or [variable]
    return names
