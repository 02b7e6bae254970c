"""Preprocessing of new objects in the same way as the training data of a network."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g._catalogue import READERS
from m3g.data.images.augment import as_float, normalize
from m3g.data.storage.moved import Folders
from m3g.data.tables.columns import Column, read_columns
from m3g.data.tables.file_readers import FileReader, colours
from m3g.data.tables.reader import Cells, Reader, Recipe
from m3g.data.tables.source import open_table

if TYPE_CHECKING:
    import pyarrow


def make_reader(name: str, recipe: Recipe) -> Reader | None:
    """Return the reader that a recipe describes; None for a view that is a separate array."""
    options = {option: value for option, value in recipe.items() if option not in ("kind", "columns")}
    if recipe.get("kind") not in READERS:
        return None
    reader: Reader = READERS[recipe["kind"]].load()(name, recipe["columns"], **options)
    return reader


def open_new(path: str | Path, names: Sequence[str], recipes: Sequence[Recipe]) -> list[Column | None]:
    """Return each view of a network from a table of new objects; None for a view without columns in the table."""
    source = open_table(path)
    readers = [make_reader(name, recipe) for name, recipe in zip(names, recipes)]
    available = [
        reader if reader is not None and any(column in source.types for column in reader.columns) else None
        for reader in readers
    ]
    used = [reader for reader in available if reader is not None]
    if not used:
        known = sorted({column for reader in readers if reader is not None for column in reader.columns})
        raise ValueError(
            f"table must have at least one of the columns {', '.join(known)} of the run, got {', '.join(source.types)}."
        )
    columns = iter(read_columns(source, used, np.zeros(source.num_rows, dtype=bool), new=True))
    return [None if reader is None else next(columns) for reader in available]


def from_cells(
    name: str, recipe: Recipe, values: Iterable[object] | Mapping[str, Iterable[object]]
) -> tuple[Tensor, Tensor]:
    """Return the tensor (n, ...) of a view, converted from the cells of n rows, and which rows are present, bool (n,).

    `values` is a list of cells (such as texts, numbers or paths; None where missing) or, for several columns, a mapping
    from their names to such lists.
    """
    reader = make_reader(name, recipe)
    if reader is None:
        raise ValueError(f"view {name!r} must be an array or a tensor, got {type(values).__name__}.")
    cells = values if isinstance(values, Mapping) else {reader.columns[0]: list(values)}
    if cells is not values and len(reader.columns) > 1 and any(cell is not None for cell in cells[reader.columns[0]]):
        raise ValueError(f"view {name!r} must be a mapping from its columns {', '.join(reader.columns)}, got a list.")
    columns = {str(column): _array(name, column, cells[column]) for column in cells}
    unknown = sorted(set(columns) - set(reader.columns))
    if unknown:
        raise ValueError(f"view {name!r} has no column {unknown[0]!r}: its columns are {', '.join(reader.columns)}.")
    lengths = {column: len(part) for column, part in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"view {name!r} must have columns of the same length, got {lengths or 'none'}.")
    if isinstance(reader, FileReader):
        reader.allow_outside = True  # the files are named by the caller, not by a table
    rows = Cells(0, columns, Folders(Path()))
    if zeros := reader.unknown(rows):
        warnings.warn(
            f"view {name!r} has values without a word or category of the training rows ({len(zeros)} in all, such as "
            f"{str(zeros[0])[:40]!r}): they are encoded as zeros.",
            stacklevel=2,
        )
    stored, present = reader.encode(rows)
    if stored.dtype != object:
        reader.damaged(stored[present])  # warns about contents that cannot be read, or raises if there are many
    out = torch.zeros(len(present), *reader.shape, dtype=reader.dtype)
    if present.any():
        out[torch.from_numpy(present)] = reader.tensor(stored[present])
    return out, torch.from_numpy(present)


def _array(name: str, column: str, cells: Iterable[object]) -> pyarrow.Array:
    arrow = _checks.extra("pyarrow", "train")
    try:
        return arrow.array([str(cell) if isinstance(cell, Path) else cell for cell in cells])
    except arrow.ArrowException as error:
        raise ValueError(
            f"view {name!r} must have cells of one type in column {column!r}, got others: {error}."
        ) from None


def is_known(name: str, recipe: Recipe, column: str, value: str) -> bool:
    """Return False if a value is encoded as zeros, because the training rows have no such word or category."""
    reader = make_reader(name, recipe)
    assert reader is not None
    return not reader.unknown(Cells(0, {column: _array(name, column, [value])}, Folders(Path())))


def from_pixels(images: Tensor, size: int, recipe: Recipe) -> Tensor:
    """Preprocess integer images, with channels first or last, like images of a table (`load_image` in reading.py)."""
    low, high = (int(bound) for bound in images.aminmax())
    if low < 0 or high > 255:
        raise ValueError(f"images must have integer values from 0 to 255, got {low} to {high}.")
    if images.ndim == 4 and images.shape[1] != 3 and images.shape[-1] == 3:
        images = images.movedim(-1, 1)
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images must have shape (n, 3, h, w) or (n, h, w, 3), got {tuple(images.shape)}.")
    side = min(images.shape[2:])
    top, left = ((length - side) // 2 for length in images.shape[2:])
    images = as_float(images[..., top : top + side, left : left + side].to(torch.uint8))
    if tuple(images.shape[2:]) != (size, size):
        images = torch.nn.functional.interpolate(
            images, (size, size), mode="bicubic", antialias=True, align_corners=False
        )
    return normalize(images.clamp(0, 1), **colours(recipe.get("processor", {})))
