"""Arrays in `.npy` files and `.npz` archives, read in one pass without pickle."""

from __future__ import annotations

import os
import zipfile
import zlib
from io import BufferedReader
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import scipy.sparse

from m3g import _checks
from m3g.data.storage.limits import check_memory

CHUNK = 2**22  # bytes of an array that are read at a time
_HEADERS = {
    b"\x01\x00": np.lib.format.read_array_header_1_0,
    b"\x02\x00": np.lib.format.read_array_header_2_0,
    b"\x03\x00": np.lib.format.read_array_header_2_0,
}
_COMPRESSED = {"csr": scipy.sparse.csr_matrix, "csc": scipy.sparse.csc_matrix, "bsr": scipy.sparse.bsr_matrix}
# Names of the arrays of a sparse matrix: required ones, and others.
_SPARSE = ({"format", "shape", "data"}, {"indices", "indptr", "row", "col", "offsets", "_is_array"})


class Header(NamedTuple):
    """Header of an array in numpy's format."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of entries, as an integer of any size."""
        return int(np.prod([int(n) for n in self.shape], dtype=object)) if self.shape else 1


def read_header(content: IO[bytes], size: int) -> Header:
    """Read the header at the start of `size` bytes; reject Python objects, and arrays that require more bytes."""
    if content.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
        raise ValueError("damaged, or not an .npy array")
    version = content.read(2)
    if version not in _HEADERS:
        raise ValueError(f"damaged, or of an unknown version {tuple(version)}")
    try:
        header = Header(*_HEADERS[version](content))
    except EOFError as error:
        raise OSError(f"damaged: {error}") from error
    if header.dtype.hasobject:
        raise ValueError("it contains Python objects, which require pickle")
    if header.dtype.itemsize * header.size > size - content.tell():
        raise ValueError(f"damaged: an array of shape {header.shape} in {size} bytes")
    return header


def open_npy(path: str | Path) -> tuple[BufferedReader, Header]:
    """Open an `.npy` file and read its header; the data start at the position of the file."""
    content = open(path, "rb")  # noqa: SIM115 - the caller closes it
    try:
        return content, read_header(content, os.fstat(content.fileno()).st_size)
    except BaseException:
        content.close()
        raise


def load_npy(path: str | Path) -> np.ndarray:
    """Load an `.npy` file that fits into memory."""
    content, header = open_npy(path)
    with content:
        return _load(content, header)


def _load(content: IO[bytes], header: Header) -> np.ndarray:
    """Load the data that follow a header, unless they do not fit into memory."""
    check_memory(f"an array of shape {header.shape}", header.dtype.itemsize * header.size)
    array: np.ndarray = np.empty(header.shape, header.dtype, order="F" if header.fortran else "C")
    data = array.reshape(-1, order="A").view(np.uint8) if array.nbytes else np.empty(0, np.uint8)
    start = 0
    while start < len(data):
        piece = np.frombuffer(content.read(min(CHUNK, len(data) - start)), np.uint8)
        if not len(piece):
            raise OSError(f"damaged: {start} of {len(data)} bytes")
        data[start : start + len(piece)] = piece
        start += len(piece)
    return array


class Archive:
    """Open `.npz` archive of arrays, which are loaded by name; close it after use.

    Attributes:
        files: the names of the arrays.
    """

    def __init__(self, file: str | Path) -> None:
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise OSError("damaged, or not an .npz archive") from error
        self.files = [name[:-4] for name in self._archive.namelist() if name.endswith(".npy")]

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._archive.close()

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._archive.getinfo(f"{name}.npy")
        try:
            with self._archive.open(info) as content:
                return _load(content, read_header(content, info.file_size))
        except (EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
            raise OSError(f"damaged: {error}") from error

    @property
    def is_sparse(self) -> bool:
        """Whether the archive is a sparse matrix written by `scipy.sparse.save_npz`."""
        required, others = _SPARSE
        return required <= set(self.files) <= required | others

    def dense(self) -> np.ndarray:
        """Return the sparse matrix as a dense array, unless it does not fit into memory."""
        kind, shape, data = self["format"].item(), tuple(self["shape"].tolist()), self["data"]
        kind = kind.decode() if isinstance(kind, bytes) else kind
        _checks.one_of("format of the sparse matrix", kind, (*_COMPRESSED, "coo", "dia"))
        check_memory(f"a matrix of shape {shape}", Header(shape, False, data.dtype).size * data.dtype.itemsize)
        if kind == "coo":
            matrix = scipy.sparse.coo_matrix((data, (self["row"], self["col"])), shape)
        elif kind == "dia":
            matrix = scipy.sparse.dia_matrix((data, self["offsets"]), shape)
        else:
            matrix = _COMPRESSED[kind]((data, self["indices"], self["indptr"]), shape)
            matrix.check_format(full_check=True)  # toarray would write entries with invalid indices outside the array
        dense: np.ndarray = matrix.toarray()
        return dense
