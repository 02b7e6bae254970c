"""Reader of published multi-view files: k matrices of the same objects in one `.mat`, `.npz` or `.h5` file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from m3g import _checks
from m3g.data.storage.matlab import load_matlab
from m3g.experiments.sources.files import Arrays

if TYPE_CHECKING:
    from h5py import File, Group

Cell: TypeAlias = "np.ndarray | list[Cell]"  # an array, or a cell array of them
SUFFIXES = (".mat", ".npz", ".h5", ".hdf5")
LABELS = ("label", "labels", "y", "gt", "gnd", "truth", "truelabel", "class", "target")  # usual names of the labels


def read_views(path: Path) -> Arrays:
    """Return the views of a file by name (`view0`, ... for a cell array), and `label` if the file has labels.

    All numeric matrices with at least two rows and columns are views, and so are the elements of cell arrays. They must
    have equally many rows, and as many as there are labels. If objects are columns, as in many `.mat` files, all views
    are transposed.
    """
    stored = _content(path)
    cell = next((stored.pop(name) for name in list(stored) if name.lower() in LABELS), None)
    while isinstance(cell, list):  # a copy of the labels for every view
        cell = cell[0]
    label = None if cell is None else np.asarray(cell).ravel()
    views: Arrays = {}
    for name, value in stored.items():
        if isinstance(value, list):
            views |= {f"view{l}": entry for l, entry in enumerate(value) if not isinstance(entry, list)}
        elif value.ndim >= 2 and min(value.shape[:2]) > 1:
            views[name] = value
    views = {name: view for name, view in views.items() if view.dtype.kind in "biuf"}
    n = len(label) if label is not None else None
    shapes = {name: view.shape for name, view in views.items()}
    for axis in (0, 1):  # objects are rows, or columns
        sizes = {shape[axis] for shape in shapes.values() if len(shape) > axis}
        if len(views) > 1 and len(sizes) == 1 and n in (None, *sizes):
            first = {name: np.moveaxis(view, axis, 0) for name, view in views.items()}
            rows = {name: view.reshape(len(view), -1).astype(np.float32) for name, view in first.items()}
            return rows | ({} if label is None else {"label": _storable(label)})
    known = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "none"
    labels = "no labels" if n is None else f"{n} labels"
    raise ValueError(
        f"{path} must have at least two matrices with one row or column per object, got {known} and {labels}."
    )


def _storable(label: np.ndarray) -> np.ndarray:
    """Return labels as numbers or strings, which require no pickle."""
    return label if label.dtype.kind in "biufU" else label.astype(str)


def _content(path: Path) -> dict[str, Cell]:
    """Return the arrays of a file by name; a cell array is a list."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    if path.suffix == ".mat" and not _is_hdf5(path):
        return {name: _unpacked(value) for name, value in load_matlab(path).items()}
    h5py = _checks.extra("h5py", "hdf5")
    with h5py.File(path) as file:
        # Matlab 7.3 stores matrices transposed, and cell arrays as references.
        return _read_group(file, file, transposed=path.suffix == ".mat")


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(128)
    return start.startswith(b"\x89HDF") or b"MATLAB 7.3" in start


def _unpacked(value: np.ndarray) -> Cell:
    if hasattr(value, "toarray"):  # a sparse matrix
        dense: np.ndarray = value.toarray()
        return dense
    return [_unpacked(entry) for entry in value.ravel()] if value.dtype == object else value


def _read_group(group: Group, file: File, *, transposed: bool) -> dict[str, Cell]:
    arrays: dict[str, Cell] = {}
    for name, entry in group.items():
        if name.startswith("#"):
            continue
        if hasattr(entry, "items"):
            arrays |= _read_group(entry, file, transposed=transposed)
        elif entry.dtype.kind == "O" and entry.dtype.metadata and "ref" in entry.dtype.metadata:
            arrays[name] = [file[reference][()].T for reference in entry[()].ravel()]
        else:
            value = entry.asstr()[()] if entry.dtype.kind == "O" else entry[()]
            arrays[name] = value.T if transposed else value
    return arrays
