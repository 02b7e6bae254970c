"""Views that are files of arrays; a large `.npy` file is never read whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m3g.data.objects.reader import Cells, Reader
from m3g.data.objects.rows import IN_MEMORY, Rows, npy_rows
from m3g.data.readers import read_array


class ArrayReader(Reader):
    """Rows of an array as float32."""

    kind = "vector"

    def __init__(self, name: str, columns: list[str], shape: tuple[int, ...]):
        super().__init__(name, columns)
        self._shape = shape or (1,)
        self.scaling: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def encode(self, cells: Cells) -> Any:
        raise NotImplementedError("an array is no column of a table")

    def tensor(self, stored: np.ndarray) -> Tensor:
        view = torch.from_numpy(stored.astype(np.float32)).reshape(len(stored), *self._shape)
        return view if self.scaling is None else (view - self.scaling[0]) / self.scaling[1]

    def recipe(self) -> dict[str, Any]:
        return {"kind": "array"}


def is_large(path: str | Path) -> bool:
    """Whether a file is an `.npy` file that is better left where it is."""
    file = Path(path)
    return file.suffix == ".npy" and file.is_file() and file.stat().st_size > IN_MEMORY


def read_rows(path: str | Path, *, name: str = "paths") -> tuple[Rows, np.ndarray]:
    """The rows of a file of arrays, and which of them are there: one that is NaN throughout is absent."""
    if is_large(path):
        try:
            rows = npy_rows(path)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{name} must be files that can be read, got {str(path)!r} ({error}).") from error
    else:
        array = read_array(path, name=name)
        rows = Rows(array.shape, array.dtype, array=array)
    if rows.dtype.kind not in "biuf" or 0 in rows.shape or not rows.shape:
        raise ValueError(
            f"{name} must be arrays of real numbers with rows and columns, got {rows.dtype} of shape {rows.shape} in "
            f"{str(path)!r}."
        )
    present = np.zeros(len(rows), dtype=bool)
    for start, chunk in rows.chunks():
        flat = chunk.reshape(len(chunk), -1)
        here = ~np.isnan(flat).all(1) if rows.dtype.kind == "f" else np.ones(len(flat), dtype=bool)
        present[start : start + len(chunk)] = here
        wrong = here & ~np.isfinite(flat).all(1)
        if wrong.any():
            row = start + int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"{name} must have rows of finite numbers, or only NaN for an absent row, got another in row {row} of "
                f"{str(path)!r}: fill it in or make the whole row NaN."
            )
    return rows, present
