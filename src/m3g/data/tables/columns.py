"""Stored views of a table, and the dataset that returns their batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from m3g.data.batch import TensorRows
from m3g.data.sampling import Draw
from m3g.data.splits import SPLITS, Split
from m3g.data.storage.readers import ArrayFiles
from m3g.data.storage.rows import CHUNK, Collector, Rows
from m3g.data.tables.array_reader import ArrayReader, read_rows
from m3g.data.tables.reader import Cells, Reader, VectorReader, list_lengths
from m3g.data.tables.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from m3g.data.base import ViewsData


class Column:
    """One view of all n rows: its reader, the stored values, and which rows have the view, bool (n,)."""

    def __init__(self, reader: Reader, rows: Rows, present: np.ndarray):
        self.reader, self.rows, self.present = reader, rows, present
        self.name, self.kind, self.shape = reader.name, reader.kind, reader.shape

    def take(self, index: np.ndarray) -> Tensor:
        """Return the given rows as network inputs; missing rows are zero."""
        present = self.present[index]
        if not present.any():
            return torch.zeros(len(index), *self.shape, dtype=self.reader.dtype)
        inputs = self.reader.tensor(self.rows.take(index[present]))
        if present.all():
            return inputs
        out = inputs.new_zeros(len(index), *self.shape)
        out[torch.from_numpy(present)] = inputs
        return out

    def standardize(self, train: np.ndarray) -> tuple[Tensor, Tensor] | None:
        """Fit offset and divisor of a view of numbers to the training rows, bool (n,); `take` then applies them.

        Returns the offset and divisor; None for views that are not vectors or arrays, which are not scaled.
        """
        if not isinstance(self.reader, (VectorReader, ArrayReader)):
            return None
        used = train & self.present
        centre = self.rows.take(np.flatnonzero(used)[:1])[0].astype(np.float64)
        total, squares = np.zeros_like(centre), np.zeros_like(centre)
        for start, chunk in self.rows.chunks():
            rows = chunk[used[start : start + len(chunk)]].astype(np.float64) - centre
            total += rows.sum(0)
            squares += np.square(rows).sum(0)
        mean = total / used.sum()
        deviation = np.sqrt(np.maximum(squares / used.sum() - mean**2, 0.0))
        divisor = np.where(deviation > 0, deviation, 1.0)
        self.reader.scaling = tuple(  # type: ignore[assignment]
            torch.from_numpy(part.astype(np.float32)).reshape(self.shape) for part in (mean + centre, divisor)
        )
        return self.reader.scaling


class ObjectRows(TensorRows):
    """Dataset of one split, whose views are read from columns."""

    def __init__(self, columns: Sequence[Column], mask: Tensor | None, label: Tensor | None, index: Tensor):
        super().__init__((), mask, label, index)
        self.columns = columns

    def read(self, take: Tensor, first: int | Draw) -> list[Tensor]:
        return [column.take(self.index[take].numpy()) for column in self.columns]


def set_up(
    data: ViewsData,
    columns: Sequence[Column],
    label: Tensor | None,
    rows: Mapping[Split, np.ndarray],
    *,
    standardize: bool,
) -> None:
    """Set the views and splits of a data module, with the classes `label` (n,) and the rows of every split."""
    present = np.stack([column.present for column in columns])
    kept = np.asarray(present.any(0))  # rows whose views are all damaged or missing are dropped
    train = np.zeros(present.shape[1], dtype=bool)
    train[rows["train"]] = True
    for column in columns:
        if not column.present[train].any():
            raise ValueError(f"view {column.name!r} must have at least one training row, got none: use more rows.")
        data.scaling.append(column.standardize(train) if standardize else None)
    data.view_names = [column.name for column in columns]
    data.view_shapes = [column.shape for column in columns]
    mask = None if present[:, kept].all() else torch.from_numpy(present)
    for part in SPLITS:
        index = torch.from_numpy(rows[part][kept[rows[part]]])
        data.datasets[part] = ObjectRows(
            columns, None if mask is None else mask[:, index], None if label is None else label[index], index
        )


def read_columns(
    source: Source, readers: Sequence[Reader], train: np.ndarray, *, duplicates: bool = True, new: bool = False
) -> list[Column]:
    """Return one column per reader.

    The table is read once to fit the readers, unless `new` is set, and once to store the encoded values.

    Args:
        source: the table.
        readers: one reader per view.
        train: bool (n,), marks the training rows.
        duplicates: allow rows that are equal in every view.
        new: whether the readers are already fitted.
    """
    names = list(dict.fromkeys(column for reader in readers for column in reader.columns if column in source.types))
    if not new:
        for start, batch in source.batches(names):
            part = train[start : start + len(batch[names[0]])]
            for reader in readers:
                reader.learn(Cells(start, batch, source.folders), part)
    stores = [Collector(len(readers)) for _ in readers]
    present: list[list[np.ndarray]] = [[] for _ in readers]
    fingerprints = []
    for reader in readers:
        if not new:
            reader.finish()
    for start, batch in source.batches(names):
        cells = Cells(start, batch, source.folders)
        for reader, store, parts in zip(readers, stores, present):
            for chunk in _chunks(cells, reader.shape):
                rows, rows_present = reader.encode(chunk)
                store.add(rows)
                parts.append(rows_present)
        if not duplicates:
            fingerprints.append(_fingerprints(batch))
    if fingerprints:
        _reject_duplicates(np.concatenate(fingerprints))
    columns = []
    empty = ~np.any([np.concatenate(parts) for parts in present], axis=0)
    if empty.any():
        raise ValueError(
            f"row {int(np.flatnonzero(empty)[0])} must have at least one view, got none: remove the row from the table."
        )
    for reader, store, parts in zip(readers, stores, present):
        readable = np.concatenate(parts)
        column = Column(reader, store.rows(), readable)
        rows = np.flatnonzero(readable)
        if len(rows):
            stored = column.rows.take(rows) if column.rows.dtype == object else np.empty(len(rows))
            readable[rows[reader.damaged(stored)]] = False
        columns.append(column)
    return columns


def _chunks(cells: Cells, shape: Sequence[int]) -> Iterator[Cells]:
    """Yield the cells in chunks whose encoded values require little memory, because decoded sounds are long."""
    step = max(1, CHUNK // (4 * math.prod(shape)))
    number = len(next(iter(cells.columns.values())))
    for first in range(0, number, step):
        columns = {name: column.slice(first, step) for name, column in cells.columns.items()}
        yield Cells(cells.start + first, columns, cells.folders)


def _fingerprints(batch: dict[str, pa.Array]) -> np.ndarray:
    """Return a hash per row; rows with equal cells have equal hashes."""
    cells = zip(*map(_plain, batch.values()))
    return np.array([hash(row) for row in cells], dtype=np.int64)


def _plain(column: pa.Array) -> list[object]:
    """Return the cells of a column as hashable values; lists become bytes, to avoid a Python object per number."""
    if not hasattr(column.type, "value_type"):
        return [repr(cell) for cell in column.to_pylist()]
    lengths = list_lengths(column)
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    parts = np.split(numbers, np.cumsum([length or 0 for length in lengths])[:-1])
    return [None if length is None else part.tobytes() for length, part in zip(lengths, parts)]


def _reject_duplicates(fingerprints: np.ndarray) -> None:
    """Raise if two rows have the same fingerprint (n,)."""
    ordered = np.sort(fingerprints)
    if not (ordered[1:] == ordered[:-1]).any():
        return
    _, first, inverse = np.unique(fingerprints, return_index=True, return_inverse=True)
    duplicate = int(np.flatnonzero(first[inverse] != np.arange(len(fingerprints)))[0])
    raise ValueError(
        f"rows must be different objects, got row {duplicate} equal to row {int(first[inverse][duplicate])} in every "
        "view: remove it, or allow it with --data_options.duplicates true."
    )


def file_column(path: str | Path, files: ArrayFiles, num_rows: int, names: Sequence[str]) -> Column:
    """Return a view that is stored in a separate file."""
    rows, present = read_rows(path, files)
    name = Path(path).stem
    if name in names:
        raise ValueError(f"--views must be files whose names differ from the table's views, got {name!r}.")
    if len(rows) != num_rows:
        raise ValueError(f"--views must have the {num_rows} rows of the table, got {len(rows)} in {str(path)!r}.")
    return Column(ArrayReader(name, [], rows.shape[1:]), rows, present)
