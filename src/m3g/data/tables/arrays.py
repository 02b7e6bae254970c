"""Data module of arrays of numbers in k files, one per view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from m3g import _checks
from m3g.data.base import ViewsData, class_codes
from m3g.data.batch import TensorRows
from m3g.data.entries import drop_entries, seeded_draws, swap_entries
from m3g.data.splits import SPLITS, Split, split_rows
from m3g.data.storage.readers import ArrayFiles, file_names
from m3g.data.storage.rows import Rows
from m3g.data.tables.array_reader import ArrayReader, is_large, read_rows
from m3g.data.tables.columns import Column, set_up

# Function of the number of rows n; returns their classes (n,) or None, and the rows of every split.
SplitRows: TypeAlias = Callable[[int], tuple[Tensor | None, dict[Split, np.ndarray]]]


class Arrays(ViewsData):
    """Arrays of numbers in k files, one per view: row i of every file is the same object.

    Files are `.npy`, `.npz` (`file.npz:key` selects one of several arrays; a sparse matrix saved by scipy is converted
    to dense), `.mat` (`file.mat:X`, `file.mat:X{2}` for an entry of a cell array, `file.mat:X'` transposed), `.csv`,
    `.tsv` or `.xlsx` with the column names in the first line, `.json`, or `.parquet`. Columns of a table that number or
    identify the rows are dropped with a note, unless the table is read on demand. Arrays may have any number of axes;
    the first axis indexes the rows. An `.npy` file of more than 128 MiB / k, or a `.parquet` file whose values would
    exceed this size in float32, is not loaded: its rows are read on demand. Each feature is standardised with the mean
    and standard deviation of the training rows.

    Args:
        paths: k >= 2 files.
        labels: file of n class labels, numbers or words; used only for evaluation and to stratify the split.
        mask: file of a (k, n) or (n, k) array, true where an entry is present; rows of NaN are always missing.
        groups: file of n names, such as subjects; each group is in one split only.
        view_names: by default derived from the names of the files (`file_names`).
        batch_size: objects per step and process; None means 64, or all training rows of a process if there are fewer.
        val, test: fractions of the rows (with `groups`, of the groups) held out; the rest is for training.
        split_seed: seed of the split.
        seed: seed of the training order, of `swapped` and of `absent`.
        standardize: standardise every feature; if false, features are unchanged.
        swapped: fraction of the training entries that are replaced by those of another object, for experiments (see
            `swapped_from`); only with all views in memory, like `absent`.
        absent: fraction of the training entries that are removed, for experiments; every row keeps at least one.
        num_workers: processes that prepare batches; 0 is fastest for arrays in memory.

    Attributes:
        swapped_from: (k, n) for n training rows, the position among them of the row whose data each entry contains;
            None if `swapped` is 0.
    """

    swapped_from: Tensor | None = None

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        labels: str | Path | None = None,
        mask: str | Path | None = None,
        groups: str | Path | None = None,
        view_names: Sequence[str] | None = None,
        batch_size: int | None = None,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        standardize: bool = True,
        swapped: float = 0.0,
        absent: float = 0.0,
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        if isinstance(paths, (str, Path)) or len(paths) < 2:
            got = "one" if isinstance(paths, (str, Path)) else str(len(paths))
            raise ValueError(f"paths must be k >= 2 files, one per view, got {got}.")
        names = list(view_names) if view_names is not None else file_names(paths)
        if len(names) != len(paths):
            raise ValueError(f"view_names must be {len(paths)} names, one per view, got {len(names)}.")
        if len(set(names)) < len(names):
            raise ValueError(f"view_names must be distinct, got {', '.join(names)}.")
        with ArrayFiles() as files:
            split = partial(
                self._split,
                labels=None if labels is None else files.read(labels, name="labels", text=True).squeeze(),
                groups=None if groups is None else files.read(groups, name="groups", text=True).squeeze(),
                val=val,
                test=test,
                seed=split_seed,
            )
            entries = None if mask is None else files.read(mask, name="mask")
            if any(is_large(path, files, views=len(paths)) for path in paths):
                if swapped or absent:
                    raise ValueError(
                        f"swapped and absent must be 0 for files that are read on demand, got {swapped} and {absent}."
                    )
                rows = [read_rows(path, files, views=len(paths), notes=self.notes) for path in paths]
                self._map(rows, names, entries, split, standardize)
            else:
                arrays = [files.read(path, notes=self.notes) for path in paths]
                self._prepare(arrays, names, entries, split, standardize, swapped, absent)

    def _map(
        self,
        files: Sequence[tuple[Rows, np.ndarray]],
        names: list[str],
        mask: np.ndarray | None,
        split: SplitRows,
        standardize: bool,
    ) -> None:
        """Set up views whose rows are read on demand; `files` are the results of `read_rows`."""
        n = same_length(names, [len(rows) for rows, _ in files])
        present = with_mask(np.stack([rows_present for _, rows_present in files]), mask)
        columns = [
            Column(ArrayReader(name, [], rows.shape[1:]), rows, rows_present)
            for name, (rows, _), rows_present in zip(names, files, present)
        ]
        label, rows = split(n)
        set_up(self, columns, label, rows, standardize=standardize)

    def _prepare(
        self,
        arrays: list[np.ndarray],
        names: list[str],
        mask: np.ndarray | None,
        split: SplitRows,
        standardize: bool,
        swapped: float,
        absent: float = 0.0,
    ) -> None:
        """Set up views in memory."""
        _checks.fraction("swapped", swapped)
        _checks.fraction("absent", absent)
        views, present = check_views(arrays, names, mask)
        label, rows = split(len(views[0]))
        for l, view in enumerate(views):
            if standardize:
                self.scaling.append(scale(view, present[l], rows["train"]))
            view[~present[l]] = 0.0
        self.view_names = names
        self.view_shapes = [tuple(view.shape[1:]) for view in views]
        all_present = None if present.all() else torch.from_numpy(present)
        tensors = [torch.from_numpy(view) for view in views]
        for part in SPLITS:
            take = torch.from_numpy(rows[part])
            self.datasets[part] = TensorRows(
                [view[take] for view in tensors],
                None if all_present is None else all_present[:, take],
                None if label is None else label[take],
                take,
            )
        train = self.datasets["train"]
        assert isinstance(train, TensorRows)
        if absent > 0:
            draws = seeded_draws(self.k, len(train), seed=self.seed)
            train.mask = drop_entries(train.mask, draws, fraction=absent, exact=True)
            train.views = [
                torch.where(kept[:, None], v.flatten(1), 0.0).view_as(v) for v, kept in zip(train.views, train.mask)
            ]
        if swapped > 0:
            self.swapped_from = swap_entries(train.views, train.mask, fraction=swapped, seed=self.seed)

    def _split(
        self,
        n: int,
        *,
        labels: np.ndarray | None,
        groups: np.ndarray | None = None,
        val: float,
        test: float,
        seed: int,
    ) -> tuple[Tensor | None, dict[Split, np.ndarray]]:
        """Return the classes of the n rows, if any, and the rows of every split; set the names of the classes."""
        label = None
        if labels is not None:
            if labels.shape != (n,):
                raise ValueError(f"labels must have {n} entries, one per row of the views, got shape {labels.shape}.")
            self.class_names, label = class_codes(labels)
        if groups is not None and groups.shape != (n,):
            raise ValueError(f"groups must have {n} names, one per row of the views, got shape {groups.shape}.")
        classes = None if label is None else label.numpy()
        return label, split_rows(n, val=val, test=test, seed=seed, labels=classes, groups=groups)


def same_length(names: Sequence[str], lengths: Sequence[int]) -> int:
    """Return the number of rows, which must be the same for all views."""
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in zip(names, lengths))
        raise ValueError(f"views must have the same number of rows (row i is the same object in all), got {shown}.")
    return lengths[0]


def with_mask(present: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Combine the present entries, bool (k, n), with the mask from the user, if any; raise if a row has no entry."""
    if mask is not None:
        given = mask.T if mask.shape == present.T.shape and mask.shape != present.shape else mask
        if given.shape != present.shape:
            raise ValueError(f"mask must be an array of shape {present.shape} (views, rows), got shape {mask.shape}.")
        if given.dtype != bool and not np.isin(given, (0, 1)).all():
            raise ValueError("mask must contain only true and false, or 1 and 0, got other values.")
        present = present & given.astype(bool)
    empty = np.flatnonzero(~present.any(0))
    if len(empty):
        raise ValueError(f"row {empty[0]} must have at least one view, got none: remove the row from every file.")
    return present


def check_views(
    arrays: Sequence[np.ndarray], names: Sequence[str], mask: np.ndarray | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return k validated arrays as float32 with at least one feature axis, and the present entries, bool (k, n)."""
    if same_length(names, [len(array) if array.ndim else 0 for array in arrays]) == 0:
        raise ValueError("views must have at least one row, got none.")
    views = []
    for name, array in zip(names, arrays):
        if array.dtype.kind not in "biuf":
            raise ValueError(f"views must be arrays of real numbers, got {array.dtype} in view {name!r}.")
        if array.size == 0:
            raise ValueError(f"views must have at least one column, got shape {array.shape} in view {name!r}.")
        with np.errstate(over="ignore"):  # infinite values are rejected below, with their row and column
            view = np.array(array, dtype=np.float32)
        views.append(view[:, None] if view.ndim == 1 else view)
    present = np.stack([~np.isnan(flat(view)).all(1) for view in views])
    present = with_mask(present, mask)
    for view, name, rows_present in zip(views, names, present):
        _check_values(flat(view), name, rows_present)
    return views, present


def flat(view: np.ndarray) -> np.ndarray:
    """Return a view (n, ...) as a matrix (n, features)."""
    return view.reshape(len(view), -1)


def _check_values(table: np.ndarray, name: str, present: np.ndarray) -> None:
    """Reject a view (n, features) without present rows, with an empty column, or with values that are not finite."""
    if not present.any():
        raise ValueError(f"view {name!r} must have at least one present row, got only NaN or masked ones.")
    empty = np.flatnonzero(np.isnan(table).all(0))
    if len(empty):
        raise ValueError(
            f"view {name!r} must have numbers in every column, got only NaN in column {empty[0]}: remove it."
        )
    invalid = present & ~np.isfinite(table).all(1)
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        column = int(np.flatnonzero(~np.isfinite(table[row]))[0])
        raise ValueError(
            f"view {name!r} must have rows of finite numbers, or only NaN for a missing row, "
            f"got {table[row, column]} in row {row}, column {column}: fill it in or make the whole row NaN."
        )


def scale(view: np.ndarray, present: np.ndarray, train: np.ndarray) -> tuple[Tensor, Tensor]:
    """Standardise every feature of a view (n, ...) in place with the statistics of the training rows.

    Features that are constant in these rows are only centred. `present`, bool (n,), marks the rows that have the view;
    `train` lists the training rows. Returns the offset and the divisor of each feature.
    """
    known = view[train][present[train]].astype(np.float64)
    if len(known) == 0:
        raise ValueError("every view must have at least one present training row, got none: use more rows.")
    deviation = known.std(0)
    mean = known.mean(0).astype(np.float32)
    divisor = np.where(deviation > 0, deviation, 1.0).astype(np.float32)
    view -= mean
    view /= divisor
    return torch.from_numpy(mean), torch.from_numpy(divisor)
