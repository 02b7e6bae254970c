"""`ColumnBlockEmbedding`: estimator for one table whose columns contain the views, for `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices  # as in ColumnTransformer
from sklearn.utils.validation import validate_data

from m3g._options import Options
from m3g.sklearn.embedding import MultiViewEmbedding, RandomState
from m3g.sklearn.views import Views

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

Blocks = int | Sequence[int] | Mapping[str, object]


class ColumnBlockEmbedding(MultiViewEmbedding):
    """`MultiViewEmbedding` of one table whose columns contain the views.

    Args:
        blocks: the columns of the views. A dict maps the name of each view to its columns, specified as in
            `ColumnTransformer` (names, indices, a slice or a callable such as `make_column_selector`); columns of no
            view are ignored. A sequence contains the widths of k adjacent blocks, which sum to the number of columns of
            X. An integer k means k adjacent blocks of about equal width.
        n_components, ...: as in `MultiViewEmbedding`.

    If all values of a row in a block are NaN, the entry is missing. If only some of them are NaN, an error is raised;
    therefore the tag `allow_nan` is False.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((60, 9)), np.arange(60) % 2
        >>> model = make_pipeline(ColumnBlockEmbedding([4, 5], epochs=1, random_state=0), LogisticRegression())
        >>> model.fit(X, y).predict(X).shape
        (60,)
    """

    def __init__(
        self,
        blocks: Blocks = 2,
        *,
        n_components: int = 16,
        loss: str = "m3g",
        loss_options: Options | None = None,
        width: int = 128,
        depth: int = 2,
        epochs: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        validation_fraction: float = 0.1,
        random_state: RandomState = None,
    ) -> None:
        self.blocks = blocks
        super().__init__(
            n_components,
            loss=loss,
            loss_options=loss_options,
            width=width,
            depth=depth,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            random_state=random_state,
        )

    def _views(self, X: ArrayLike | pd.DataFrame, *, first: bool) -> Views:
        if isinstance(self.blocks, Mapping):
            validate_data(self, X, reset=first, skip_check_array=True)
            if first:
                chosen = {str(name): part(X) if callable(part) else part for name, part in self.blocks.items()}
                self.columns_ = {name: _get_column_indices(X, part) for name, part in chosen.items()}
            parts = {name: _safe_indexing(X, columns, axis=1) for name, columns in self.columns_.items()}
            return super()._views(parts, first=first)
        X = validate_data(
            self, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=1 + first, reset=first
        )
        if first:
            self.widths_ = self._widths(X.shape[1])
        return super()._views(np.split(X, np.cumsum(self.widths_)[:-1], axis=1), first=first)

    def _widths(self, columns: int) -> list[int]:
        if isinstance(self.blocks, (int, np.integer)):
            if not 2 <= self.blocks <= columns:
                raise ValueError(
                    f"blocks must be from 2 to the number of columns, got {self.blocks}: n_features = {columns}."
                )
            return [len(part) for part in np.array_split(np.arange(columns), self.blocks)]
        widths = [int(width) for width in self.blocks]
        if len(widths) < 2 or min(widths) < 1 or sum(widths) != columns:
            raise ValueError(f"blocks must be k >= 2 widths that add up to the {columns} columns of X, got {widths}.")
        return widths
