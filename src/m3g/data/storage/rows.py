"""Rows of one shape, in memory or, where they are many, in a file of which only what is asked for is read."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from m3g.data.storage.limits import load_numpy

IN_MEMORY = 2**27  # bytes that all views together hold in memory; what is more stays in files
CHUNK = 2**22  # bytes that are read at a time


class Rows:
    """n rows of one shape and type: an array, or a part of an open file.

    A file is mapped anew for each call and unmapped after it: pages of a map that stays count as memory of the process.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        array: np.ndarray | None = None,
        file: Any = None,
        offset: int = 0,
        order: Any = "C",
    ):
        self.shape, self.dtype = shape, dtype
        self._array, self._file, self._offset, self._order = array, file, offset, order
        if file is not None:
            weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self.shape[0]

    def _open(self) -> np.ndarray:
        if self._array is not None:
            return self._array
        return np.memmap(self._file, self.dtype, "r", self._offset, self.shape, self._order)

    def take(self, index: np.ndarray) -> np.ndarray:
        """These rows, copied."""
        return np.array(self._open()[index])

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in order, a few at a time, with the number of the first."""
        row = max(1, int(np.prod(self.shape[1:])) * self.dtype.itemsize)
        step = max(1, CHUNK // row)
        for start in range(0, len(self), step):
            yield start, np.array(self._open()[start : start + step])


class Collector:
    """Rows that come piece by piece; past some bytes they go to a file without a name, which ends with us.

    Args:
        views: how many share the memory that rows may take.
    """

    def __init__(self, views: int = 1) -> None:
        self._pieces: list[np.ndarray] = []
        self._bytes = 0
        self._most = IN_MEMORY // views
        self._file: Any = None
        self._rows = 0

    def add(self, piece: np.ndarray) -> None:
        self._rows += len(piece)
        if self._file is not None:
            self._file.write(np.ascontiguousarray(piece).data)
            return
        self._pieces.append(piece)
        self._bytes += piece.nbytes
        if piece.dtype != object and self._bytes > self._most:
            self._file = tempfile.TemporaryFile(prefix="m3g-")  # noqa: SIM115 - it stays open as long as the rows
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
    """The rows of an `.npy` file, of which nothing is read yet."""
    array = load_numpy(path, mapped=True)
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return Rows(array.shape, array.dtype, file=open(path, "rb"), offset=array.offset, order=order)
