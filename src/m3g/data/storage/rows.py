"""Rows of one shape, in memory or, if they are large, in a file that is read on demand."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal

import numpy as np

from m3g.data.storage.numpy_files import open_npy

IN_MEMORY = 2**27  # bytes of all views together; a view larger than its equal share stays in a file
CHUNK = 2**22  # bytes read at a time
MMAP_THRESHOLD = -3  # the option M_MMAP_THRESHOLD of mallopt
RETURNED = 2**20  # bytes of the smallest block that is returned to the system as soon as it is freed


@functools.cache
def return_freed_memory() -> None:
    """Make glibc return freed blocks of 1 MiB or more to the system; other C libraries are left as they are.

    By default, glibc keeps freed blocks up to the size of the largest block freed so far, at most 32 MiB. It returns
    them to the system only if no block at a higher address is in use. Large batches may therefore occupy many times
    their size.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, RETURNED)


class Rows:
    """n rows of one shape and type: an array, or a part of an open file.

    The file is mapped into memory only during a call, because the pages of a persistent map count as process memory.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
        *,
        array: np.ndarray | None = None,
        file: IO[bytes] | None = None,
        offset: int = 0,
        order: Literal["C", "F"] = "C",
    ):
        self.shape, self.dtype = shape, dtype
        self._array, self._file, self._offset, self._order = array, file, offset, order
        if file is not None:
            return_freed_memory()
            weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self.shape[0]

    def _open(self) -> np.ndarray:
        if self._array is not None:
            return self._array
        assert self._file is not None
        return np.memmap(self._file, self.dtype, "r", self._offset, self.shape, self._order)

    def take(self, index: np.ndarray) -> np.ndarray:
        """Return a copy of the given rows."""
        return np.array(self._open()[index])

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows in order, in chunks, each with the number of its first row."""
        row = max(1, int(np.prod(self.shape[1:])) * self.dtype.itemsize)
        step = max(1, CHUNK // row)
        for start in range(0, len(self), step):
            yield start, np.array(self._open()[start : start + step])


class Collector:
    """Rows that are added in pieces; beyond a memory limit, they are stored in an unnamed temporary file.

    Rows of Python objects always stay in memory.

    Args:
        views: number of views that share the memory limit.
    """

    def __init__(self, views: int = 1) -> None:
        self._pieces: list[np.ndarray] = []
        self._bytes = 0
        self._max_bytes = IN_MEMORY // views
        self._file: IO[bytes] | None = None
        self._rows = 0

    def add(self, piece: np.ndarray) -> None:
        self._rows += len(piece)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(piece).data)
            return
        self._pieces.append(piece)
        self._bytes += piece.nbytes
        if piece.dtype != object and self._bytes > self._max_bytes:
            self._file = tempfile.TemporaryFile(prefix="m3g-")  # noqa: SIM115 - it stays open as long as the rows exist
            pieces, self._pieces = self._pieces, [piece[:0]]
            for part in pieces:
                self._file.write(np.ascontiguousarray(part).data)

    def rows(self) -> Rows:
        first = self._pieces[0]
        if self._file is None:
            array = np.concatenate(self._pieces)
            return Rows(array.shape, array.dtype, array=array)
        self._file.flush()
        return Rows((self._rows, *first.shape[1:]), first.dtype, file=self._file)


def npy_rows(path: str | Path) -> Rows:
    """Return the rows of an `.npy` file without reading them."""
    file, (shape, fortran, dtype) = open_npy(path)
    return Rows(shape, dtype, file=file, offset=file.tell(), order="F" if fortran else "C")
