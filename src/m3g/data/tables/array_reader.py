"""Reader of array files; a large `.npy` or `.parquet` file is never loaded as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.storage.readers import ArrayFiles
from m3g.data.storage.rows import IN_MEMORY, Collector, Rows, npy_rows
from m3g.data.tables.kinds import kind_of_type
from m3g.data.tables.reader import Cells, Reader, Recipe
from m3g.data.tables.source import open_table


class ArrayReader(Reader):
    """Reader of the rows of an array as float32; `Column.standardize` (columns.py) sets `scaling`."""

    kind = "vector"

    def __init__(self, name: str, columns: list[str], shape: tuple[int, ...]):
        super().__init__(name, columns)
        self._shape = shape or (1,)
        self.scaling: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def encode(self, cells: Cells) -> NoReturn:
        raise NotImplementedError("an array is not a column of a table")

    def tensor(self, stored: np.ndarray) -> Tensor:
        view = torch.from_numpy(stored.astype(np.float32)).reshape(len(stored), *self._shape)
        return view if self.scaling is None else (view - self.scaling[0]) / self.scaling[1]

    def recipe(self) -> Recipe:
        return {"kind": "array"}


def is_large(path: str | Path, files: ArrayFiles, *, views: int) -> bool:
    """Return whether an `.npy` or `.parquet` file should stay on disk; `views` files share the memory limit."""
    file = Path(path)
    if not file.is_file():
        return False
    sizes = {".npy": lambda: file.stat().st_size, ".parquet": lambda: _parquet_size(file, files)}
    return file.suffix.lower() in sizes and sizes[file.suffix.lower()]() > IN_MEMORY // views


def _parquet_size(file: Path, files: ArrayFiles) -> int:
    """Return the size in bytes of the content of a parquet file as float32."""
    arrow = _checks.extra("pyarrow", "train")
    try:
        metadata = files.parquet(file).metadata
    except (arrow.ArrowException, OSError):
        return 0  # the error is reported when the file is read
    return int(4 * metadata.num_rows * metadata.num_columns)


def _parquet_rows(path: str | Path, files: ArrayFiles, *, name: str, views: int) -> Rows:
    """Return the rows of a table of numbers, in a temporary file if they are large."""
    table, rows = open_table(path, name=name, parquet=files.parquet(Path(path))), Collector(views)
    non_numeric = [column for column, kind in table.types.items() if kind_of_type(kind) != "number"]
    if non_numeric:
        raise ValueError(
            f"{name} must have only numeric columns, but column {non_numeric[0]!r} of {str(path)!r} is not numeric: "
            "remove or encode it."
        )
    for _, columns in table.batches(list(table.types)):
        numbers = [part.cast("float32", safe=False).to_numpy(zero_copy_only=False) for part in columns.values()]
        rows.add(np.stack(numbers, axis=1))
    return rows.rows()


def read_rows(
    path: str | Path, files: ArrayFiles, *, name: str = "paths", views: int = 1, notes: list[str] | None = None
) -> tuple[Rows, np.ndarray]:
    """Return the n rows of an array file, and which of them are present, bool (n,).

    A row of only NaN is missing. `views` files share the memory limit. Error messages refer to the argument `name`.
    Columns of a table that number or identify the rows are dropped, with notes appended to `notes`, except in a
    `.parquet` file above the memory limit, whose columns are all used.
    """
    if not is_large(path, files, views=views):
        array = files.read(path, name=name, notes=[] if notes is None else notes)
        rows = Rows(array.shape, array.dtype, array=array)
    elif Path(path).suffix.lower() == ".parquet":
        rows = _parquet_rows(path, files, name=name, views=views)
    else:
        try:
            rows = npy_rows(path)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{name} must be files that can be read, got {str(path)!r} ({error}).") from error
    if rows.dtype.kind not in "biuf" or 0 in rows.shape or not rows.shape:
        raise ValueError(
            f"{name} must be non-empty arrays of real numbers with at least one axis, got {rows.dtype} of shape "
            f"{rows.shape} in {str(path)!r}."
        )
    present = np.zeros(len(rows), dtype=bool)
    for start, chunk in rows.chunks():
        flat = chunk.reshape(len(chunk), -1)
        chunk_present = ~np.isnan(flat).all(1) if rows.dtype.kind == "f" else np.ones(len(flat), dtype=bool)
        present[start : start + len(chunk)] = chunk_present
        with np.errstate(over="ignore"):  # batches are float32, in which large numbers are infinite
            invalid = chunk_present & ~np.isfinite(flat.astype(np.float32)).all(1)
        if invalid.any():
            row = start + int(np.flatnonzero(invalid)[0])
            raise ValueError(
                f"{name} must have rows that are finite, or entirely NaN if missing, but row {row} of {str(path)!r} is "
                "neither: fill in its values or set the whole row to NaN."
            )
    return rows, present
