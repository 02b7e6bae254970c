"""k arrays of the same rows, checked, and in a form whose rows scikit-learn can split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array


class Views:
    """k arrays (n, d_l) as n rows: `len` is n and indexing selects rows of every view.

    Cross-validation splits its rows; a plain list of k arrays would be split by views. None is a missing view.

    Example:
        >>> from sklearn.model_selection import cross_val_score
        >>> from m3g.sklearn import MultiViewEmbedding, Views
        >>> rng = np.random.default_rng(0)
        >>> objects = rng.standard_normal((60, 4))
        >>> views = Views([objects @ rng.standard_normal((4, d)) for d in (5, 6, 7)])
        >>> cross_val_score(MultiViewEmbedding(epochs=1, random_state=0), views, cv=3).shape
        (3,)
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = as_views(arrays)
        number = next((len(array) for array in self.arrays if array is not None), 0)
        if not number:
            raise ValueError("arrays must have at least one view, got none.")
        self.shape = (number,)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Views:
        rows = rows[0] if isinstance(rows, tuple) else rows  # scikit-learn indexes with (rows, ...)
        rows = [rows] if isinstance(rows, (int, np.integer)) else rows
        return Views([None if array is None else array[rows] for array in self.arrays])


def as_views(X: Any) -> list[np.ndarray | None]:
    """k tables of numbers with one number of rows, NaN allowed in whole rows; None stays None."""
    X = X.arrays if isinstance(X, Views) else X
    if not isinstance(X, (list, tuple)):
        raise ValueError(
            f"X must be a list of k arrays, one per view, got {type(X).__name__}: see ColumnBlockEmbedding."
        )
    arrays = [None if a is None else check_array(a, dtype=np.float64, ensure_all_finite="allow-nan") for a in X]
    lengths = sorted({len(array) for array in arrays if array is not None})
    if len(lengths) > 1:
        raise ValueError(f"X must be views of the same rows, got {lengths} rows.")
    for l, array in enumerate(arrays):
        if array is not None and (np.isnan(array).any(1) & ~np.isnan(array).all(1)).any():
            row = int(np.flatnonzero(np.isnan(array).any(1) & ~np.isnan(array).all(1))[0])
            raise ValueError(f"X must have rows of numbers, or NaN throughout, got some NaN in row {row} of view {l}.")
    return arrays
