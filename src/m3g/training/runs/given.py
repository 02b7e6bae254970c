"""Conversion of the views that a user passes to a trained network: a value, a list, images, or a data frame."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.tables.new_objects import Recipe

if TYPE_CHECKING:
    from PIL.Image import Image

CELLS = (str, bytes, Path)
NOUNS = {"text": "text", "tfidf": "text", "audio": "sounds"}  # by kind of view, for messages
Columns: TypeAlias = dict[str, Sequence[object]]  # cells by column


class _Series(Protocol):
    def to_list(self) -> list[object]: ...


class Frame(Protocol):
    """Data frame of pandas or polars."""

    @property
    def columns(self) -> Sequence[str]: ...
    def to_numpy(self) -> np.ndarray: ...
    def __getitem__(self, column: str) -> _Series: ...


def is_frame(value: object) -> TypeGuard[Frame]:
    """Return whether a value is a data frame, without importing pandas or polars."""
    return hasattr(value, "columns") and hasattr(value, "to_dict") and hasattr(value, "shape")


def is_picture(value: object) -> TypeGuard[Image]:
    """Return whether a value is a PIL image, without importing PIL."""
    return all(hasattr(value, name) for name in ("convert", "save", "getbands"))


def is_rows(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Return whether a value is a list of mappings, one per row."""
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(row, Mapping) for row in value)


def is_series(value: object) -> TypeGuard[_Series]:
    """Return whether a value is a series of pandas or polars, without importing them."""
    return hasattr(value, "to_list") and hasattr(value, "dtype") and not is_frame(value)


def by_view(given: Mapping[str, object], names: Sequence[str], recipes: Sequence[Recipe]) -> dict[str, object]:
    """Return the input of each view; single columns of a view of numbers and categories are grouped by view.

    Example:
        >>> recipes = [{"kind": "text", "columns": ["name"]}, {"kind": "table", "columns": ["size", "price"]}]
        >>> by_view({"name": "oak", "price": 3}, ["name", "table"], recipes)
        {'name': 'oak', 'table': {'price': 3}}
    """
    tables = {
        column: view
        for view, recipe in zip(names, recipes)
        if recipe.get("kind") == "table"
        for column in recipe["columns"]
        if column not in names
    }
    known = [*names, *tables]
    for name in given:
        if name not in known:
            raise ValueError(f"views must be named {', '.join(known)}, got {name!r}{_checks.suggestion(name, known)}")
    views = {name: value for name, value in given.items() if name in names}
    for name in views.keys() & {tables[column] for column in given.keys() & tables.keys()}:
        raise ValueError(f"views must have either {name!r} or its columns, got both.")
    for column in tables:
        if column in given:
            views.setdefault(tables[column], {})[column] = given[column]  # type: ignore[index]
    return views


def split_frame(frame: Frame, names: Sequence[str], recipes: Sequence[Recipe]) -> dict[str, Columns]:
    """Return, by view name, the columns of a data frame that belong to the view."""
    columns = _columns(frame)
    if not recipes:
        raise ValueError("views must be arrays for a run that was trained on arrays, got a data frame: pass a dict.")
    views: dict[str, Columns] = {}
    for name, recipe in zip(names, recipes):
        cells = {column: columns[column] for column in recipe.get("columns", ()) if column in columns}
        if cells:
            views[name] = cells
    if not views:
        known = sorted({column for recipe in recipes for column in recipe.get("columns", ())})
        raise ValueError(f"views must have at least one of the columns {', '.join(known)}, got {', '.join(columns)}.")
    return views


def by_column(rows: Sequence[Mapping[str, object]]) -> Columns:
    """Convert rows, each a mapping, to one list of cells per column; a cell is None if its row lacks the column.

    Example:
        >>> by_column([{"name": "oak"}, {"name": "elm", "price": 3}])
        {'name': ['oak', 'elm'], 'price': [None, 3]}
    """
    return {column: [row.get(column) for row in rows] for column in dict.fromkeys(name for row in rows for name in row)}


def convert_view(
    view: object, name: str, shape: tuple[int, ...], recipe: Recipe
) -> Tensor | Sequence[object] | Columns:
    """Convert one view of n rows to a list of cells, a mapping from columns to lists, or a tensor (n, ...).

    A single value is one row. `shape` is the shape of one row of the network's input.
    """
    kind = recipe.get("kind")
    if is_frame(view):
        view = _columns(view) if kind else view.to_numpy()
    elif is_series(view):
        view = view.to_list()
    elif isinstance(view, np.ndarray) and view.dtype.kind in "OUS":
        view = view.tolist()
    if isinstance(view, (list, tuple)) and any(
        isinstance(cell, (*CELLS, Mapping)) or is_picture(cell) for cell in view
    ):
        view = [None if _is_missing(cell) else cell for cell in view]
    elif isinstance(view, (list, tuple)) and any(cell is None for cell in view):
        if kind not in (None, "array"):
            return list(view)
        view = [np.full(shape, np.nan) if cell is None else cell for cell in view]
    if isinstance(view, CELLS) or is_picture(view):
        view = [view]
    if isinstance(view, (list, tuple)) and not view:
        return view
    if isinstance(view, Mapping):
        lists = {column: cells if _is_list(cells) else [cells] for column, cells in view.items()}
        lengths = sorted({len(cells) for cells in lists.values()})
        if len(lengths) != 1:
            raise ValueError(f"view {name!r} must have columns of one length, got {lengths or 'no columns'}.")
        return lists
    if is_rows(view):
        return by_column(view)
    if isinstance(view, (list, tuple)) and any(isinstance(cell, CELLS) or is_picture(cell) for cell in view):
        if any(is_picture(cell) for cell in view):
            if kind != "image":
                raise ValueError(f"view {name!r} must be {NOUNS.get(str(kind), 'numbers')}, got an image.")
            return [_content(cell) for cell in view]
        return list(view)
    if kind in ("text", "tfidf") and not isinstance(view, (Tensor, np.ndarray)):
        raise ValueError(f"view {name!r} must be text, got {_checks.described(view)}.")
    return _tensor(view, name, shape, image=kind == "image")


def _tensor(view: object, name: str, shape: tuple[int, ...], *, image: bool) -> Tensor:
    try:
        # PyTorch warns about arrays that are read-only, such as those of PIL images.
        tensor = torch.as_tensor(np.require(view, requirements="W") if isinstance(view, np.ndarray) else view)
    except (TypeError, ValueError, RuntimeError):
        got = _checks.described(view)
        raise ValueError(f"view {name!r} must be numbers with rows of shape {shape}, got {got}.") from None
    one_image = image and tensor.dtype == torch.uint8 and tensor.ndim == 3
    one_row = tuple(tensor.shape) == shape or (tensor.ndim == 0 and shape == (1,))
    if one_image or (one_row and shape != ()):
        tensor = tensor.reshape(1, *tensor.shape) if tensor.ndim else tensor.reshape(1, 1)
    return tensor


def _is_list(cells: object) -> TypeGuard[Sequence[object]]:
    return hasattr(cells, "__len__") and not isinstance(cells, (*CELLS, Mapping)) and not is_picture(cells)


def _is_missing(cell: object) -> bool:
    """Return whether a cell is None, NaN, or the missing value of pandas."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def _columns(frame: Frame) -> Columns:
    """Return lists by column; missing values become None."""
    return {
        str(column): [None if _is_missing(cell) else cell for cell in frame[column].to_list()]
        for column in frame.columns
    }


def _content(cell: object) -> bytes | None:
    """Return the content of an image file; bytes are such a content, and None is returned as it is.

    A PIL image is encoded as PNG, with less common modes converted to RGB.
    """
    if cell is None or isinstance(cell, bytes):
        return cell
    if is_picture(cell):
        file = io.BytesIO()
        (cell if cell.mode in ("RGB", "RGBA", "L", "P", "1") else cell.convert("RGB")).save(file, format="PNG")
        return file.getvalue()
    try:
        return Path(str(cell)).read_bytes()
    except OSError:
        raise ValueError(f"views must be image files that exist, got {str(cell)!r}.") from None
