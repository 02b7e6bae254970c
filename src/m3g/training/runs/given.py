"""Conversion of user input (one value, a list, images, a data frame) to the form that a network reads."""

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


def split_frame(frame: Frame, names: Sequence[str], recipes: Sequence[Recipe]) -> dict[str, Columns]:
    """Return, by name, the views whose columns are in a data frame."""
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


def as_given(view: object, name: str, shape: tuple[int, ...], recipe: Recipe) -> Tensor | Sequence[object] | Columns:
    """Convert one view of n rows to a list of cells, a mapping from columns to lists, or a tensor (n, ...).

    A single value is one row. `shape` is the shape of a row in the network.
    """
    kind = recipe.get("kind")
    if is_frame(view):
        view = _columns(view) if kind else view.to_numpy()
    elif hasattr(view, "tolist") and hasattr(view, "index") and not isinstance(view, (list, tuple)):
        view = view.tolist()  # a series
    if isinstance(view, CELLS) or is_picture(view):
        view = [view]
    if isinstance(view, Mapping):
        lists = {column: cells if _is_list(cells) else [cells] for column, cells in view.items()}
        lengths = sorted({len(cells) for cells in lists.values()})
        if len(lengths) != 1:
            raise ValueError(f"view {name!r} must have columns of one length, got {lengths or 'no columns'}.")
        return lists
    if isinstance(view, (list, tuple)) and view and all(isinstance(row, Mapping) for row in view):
        return {column: [row.get(column) for row in view] for column in dict.fromkeys(c for row in view for c in row)}
    if isinstance(view, (list, tuple)) and any(isinstance(cell, CELLS) or is_picture(cell) for cell in view):
        if any(is_picture(cell) for cell in view):
            if kind != "image":
                raise ValueError(f"view {name!r} must be {kind or 'numbers'}, got an image.")
            return [_content(cell) for cell in view]
        return list(view)
    return _tensor(view, name, shape, image=kind == "image")


def _tensor(view: object, name: str, shape: tuple[int, ...], *, image: bool) -> Tensor:
    try:
        tensor = torch.as_tensor(view)
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


def _columns(frame: Frame) -> Columns:
    """Return lists by column; NaN, the missing value of pandas, becomes None."""
    return {
        str(column): [None if isinstance(cell, float) and cell != cell else cell for cell in frame[column].to_list()]
        for column in frame.columns
    }


def _content(cell: object) -> bytes | None:
    """Return the content of an image file; a PIL image is losslessly encoded as PNG."""
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
