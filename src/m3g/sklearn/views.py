"""`Views`: container of k validated tables with common rows, which scikit-learn can split by rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_array

from m3g import _values

Tables: TypeAlias = "Sequence[object] | Mapping[str, object] | Views"  # tables or None, by view
Selection: TypeAlias = int | slice | Sequence[int] | np.ndarray  # of rows


class Views:
    """Container of k tables (n, d_l) with n common rows: `len` is n, and indexing selects rows of every view.

    Args:
        arrays: a list of k arrays or DataFrames, or a dict of them by the name of the view. None is a missing view. If
            all values of a row in a view are NaN, the entry is missing.

    Cross-validation splits `Views` by rows, whereas it would split a plain list of k arrays by views.

    Attributes:
        arrays: k arrays of float64, None for a missing view.
        names: the names of the views, or None if `arrays` was a list.
        features: the column names of every view, or None where it has none.
        index: the pandas index of the rows, or None.

    Example:
        >>> from sklearn.model_selection import cross_val_score
        >>> from m3g.sklearn import MultiViewEmbedding, Views
        >>> rng = np.random.default_rng(0)
        >>> objects = rng.standard_normal((60, 4))
        >>> views = Views([objects @ rng.standard_normal((4, d)) for d in (5, 6, 7)])
        >>> cross_val_score(MultiViewEmbedding(epochs=1, random_state=0), views, cv=3).shape
        (3,)
    """

    def __init__(self, arrays: Sequence[object] | Mapping[str, object]) -> None:
        if not isinstance(arrays, (list, tuple, Mapping)):
            raise ValueError(
                f"X must be a list or a dict of k arrays, one per view, got {type(arrays).__name__}: for "
                "one table whose columns contain the views, use ColumnBlockEmbedding."
            )
        named = isinstance(arrays, Mapping)
        self.names = [str(name) for name in arrays] if named else None
        tables = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays)
        if all(table is None for table in tables):
            raise ValueError("X must have at least one view, got none.")
        self.features = [_column_names(table) for table in tables]
        self.arrays = [_validated_array(table, self.title(l)) for l, table in enumerate(tables)]
        lengths = sorted({len(array) for array in self.arrays if array is not None})
        if len(lengths) > 1:
            raise ValueError(f"X must have the same number of rows in every view, got {lengths} rows.")
        self.shape = (lengths[0],)
        self.index: Any = None
        for l, table in enumerate(tables):
            index = getattr(table, "index", None) if hasattr(table, "iloc") else None  # a list has a method `index`
            if index is not None and self.index is not None and not index.equals(self.index):
                raise ValueError(
                    f"X must have the same index in every view, got another one in {self.title(l)}: reindex every view "
                    "to the union, which marks missing rows with NaN."
                )
            self.index = self.index if index is None else index

    def title(self, l: int) -> str:
        """Return the name of view l for messages."""
        return f"view {l}" if self.names is None else f"view {self.names[l]!r}"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Selection | tuple[Selection, ...]) -> Views:
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn indexes with (rows, ...)
        rows = [rows] if isinstance(rows, (int, np.integer)) else rows
        arrays = [None if array is None else array[rows] for array in self.arrays]
        return self._from_validated(arrays, self.names, self.features, None if self.index is None else self.index[rows])

    def matched(self, names: list[str] | None, features: list[list[str] | None], widths: list[int]) -> Views:
        """Return views in the order of a fit, None for a missing one; raise if columns differ from those of the fit.

        Args:
            names: the names of the views in the fit; None if they were a list.
            features: the column names of every view in the fit; None for a view without names.
            widths: the number of columns of every view in the fit.
        """
        ordered = self
        if self.names is not None:
            if names is None:
                raise ValueError("X must be a list of k arrays, as in fit, got a dict.")
            _values.among("the views of X", self.names, names)
            position = {name: l for l, name in enumerate(self.names)}
            arrays = [self.arrays[position[name]] if name in position else None for name in names]
            columns = [self.features[position[name]] if name in position else None for name in names]
            ordered = self._from_validated(arrays, names, columns, self.index)
        elif len(self.arrays) != len(widths):
            raise ValueError(
                f"X must be {len(widths)} arrays, one per view, None for a missing one, got {len(self.arrays)}: "
                "cross-validation splits the rows of views only if they are wrapped in m3g.sklearn.Views."
            )
        for l, (array, got, fitted) in enumerate(zip(ordered.arrays, ordered.features, features)):
            if array is not None and array.shape[1] != widths[l]:
                raise ValueError(f"X must have {widths[l]} features in {ordered.title(l)}, got {array.shape[1]}.")
            if got is not None and fitted is not None and got != fitted:
                raise ValueError(f"X must have the columns of fit, in their order, in {ordered.title(l)}, got {got}.")
        return ordered

    def _from_validated(
        self,
        arrays: list[np.ndarray | None],
        names: list[str] | None,
        features: list[list[str] | None],
        index: Any,
    ) -> Views:
        """Return views with these arrays, which are already validated."""
        views = object.__new__(Views)
        views.arrays, views.names, views.features, views.index = arrays, names, features, index
        views.shape = (next(len(array) for array in arrays if array is not None),)
        return views


def as_views(X: Tables) -> Views:
    """Return validated views of the input of `MultiViewEmbedding`."""
    return X if isinstance(X, Views) else Views(X)


def _column_names(table: object) -> list[str] | None:
    names = getattr(table, "columns", None)
    return None if names is None else [str(name) for name in names]


def _validated_array(table: object, title: str) -> np.ndarray | None:
    if table is None:
        return None
    array: np.ndarray = check_array(table, dtype=np.float64, ensure_all_finite="allow-nan", input_name=title)
    is_nan = np.isnan(array)
    partly_nan = is_nan.any(1) & ~is_nan.all(1)
    if partly_nan.any():
        row = int(np.flatnonzero(partly_nan)[0])
        raise ValueError(f"X must have rows of numbers, or NaN throughout, got some NaN in row {row} of {title}.")
    return array
