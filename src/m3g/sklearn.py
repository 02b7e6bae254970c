"""For scikit-learn: k views in, one representation out.

`MultiViewEmbedding` takes a list of k arrays, or `Views` of them, whose rows `GridSearchCV` and `cross_val_score` can
split. `ColumnBlockEmbedding` takes one array whose columns are the views side by side, which is what `Pipeline` passes
on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks, losses
from m3g._row_views import Views, as_views
from m3g.evaluation.retrieval import retrieval
from m3g.nets import MultiViewNet, build_net
from m3g.training.loop.light import clip, descend
from m3g.training.loop.optim import AdamSettings, adamw
from m3g.training.loop.schedules import warmup_cosine

__all__ = ["ColumnBlockEmbedding", "MultiViewEmbedding", "Views"]
QUICK_TUPLES = 2e7  # n ** k up to which an exact solve takes some tens of milliseconds
Blocks = int | Sequence[int]


class MultiViewEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Encoders of k views into one space, trained with a loss of k views.

    Args:
        n_components: features of the representation.
        loss: a name of `m3g.losses.available()` that needs no teacher.
        loss_options: its options, `{"temperature": 0.2}` say.
        width, depth: of the encoders, one perceptron per view.
        epochs: passes over the rows.
        batch_size: rows compared at a time.
        learning_rate: the peak of the schedule of AdamW.
        random_state: fixes initial weights and order; the result is then the same in every run on one machine.

    A row that is NaN throughout a view is absent there; the loss leaves it out. Features are standardised. With more
    views than an exact solve takes quickly, the losses `m3g` and `kl` compare all subsets of three views in turn.

    Attributes:
        net_: the trained network.
        n_views_, n_features_: k, and the number of features of each view.
        loss_curve_: the mean loss of every epoch.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> objects = rng.standard_normal((64, 4))
        >>> views = [objects @ rng.standard_normal((4, d)) for d in (5, 6, 7)]
        >>> model = MultiViewEmbedding(n_components=3, epochs=2, random_state=0).fit(views)
        >>> model.transform([views[0], None, None]).shape  # new rows of which one view is known
        (64, 3)
        >>> model.get_feature_names_out().tolist()
        ['multiviewembedding0', 'multiviewembedding1', 'multiviewembedding2']
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
        loss: str = "m3g",
        loss_options: Mapping[str, Any] | None = None,
        width: int = 128,
        depth: int = 2,
        epochs: int = 20,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.loss = loss
        self.loss_options = loss_options
        self.width = width
        self.depth = depth
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def fit(self, X: Sequence[Any] | Views, y: Any = None) -> MultiViewEmbedding:
        """Train on k arrays (n, d_l) whose row i is the same object; y is not used."""
        arrays = as_views(X)
        if any(array is None for array in arrays) or len(arrays) < 2:
            raise ValueError(f"X must be k >= 2 arrays to fit, got {len(arrays)}, None among them or too few.")
        return self._fit([array for array in arrays if array is not None])

    def transform(self, X: Sequence[Any] | Views) -> np.ndarray:
        """(n, n_components): the mean of the unit embeddings of the views that a row has; None is an absent view."""
        points, mask = self._embed(X)
        alone = (~mask.any(0)).nonzero()
        if len(alone):
            raise ValueError(f"X must have at least one view of every row, got none in row {int(alone[0])}.")
        weight = mask.double().unsqueeze(-1)
        return np.asarray((normalize(points, dim=-1) * weight).sum(0) / weight.sum(0))

    def transform_views(self, X: Sequence[Any] | Views) -> np.ndarray:
        """(k, n, n_components): every view's embedding by itself, NaN where a row lacks it."""
        points, mask = self._embed(X)
        return np.asarray(torch.where(mask.unsqueeze(-1), points, torch.nan))

    def score(self, X: Sequence[Any] | Views, y: Any = None) -> float:
        """R@1: how often the nearest row in another view is the same object; the mean over ordered pairs of views.

        More rows are harder to search, so scores of different numbers of rows cannot be compared. y is not used.
        """
        points, mask = self._embed(X)
        recall = retrieval(points, mask=mask).recall[1]
        return float(recall[~torch.eye(self.n_views_, dtype=torch.bool)].mean())

    def _fit(self, arrays: list[np.ndarray]) -> MultiViewEmbedding:
        for name in ("n_components", "width", "depth", "epochs", "batch_size"):
            _checks.positive_int(name, getattr(self, name))
        _checks.positive("learning_rate", self.learning_rate)
        loss, n = losses.build(self.loss, **(self.loss_options or {})), len(arrays[0])
        if loss.needs_teacher:
            raise ValueError(f"loss must be one that works without a teacher, got {self.loss!r}.")
        if n < 2:
            raise ValueError(f"X must have at least 2 rows, which are compared with each other, got 1 sample: n = {n}.")
        present = np.stack([~np.isnan(array).all(1) for array in arrays])
        if not present.any(0).all():
            raise ValueError("X must have at least one view of every row, got a row that is NaN throughout.")
        if not present.any(1).all():
            raise ValueError("X must have at least one row of every view, got a view that is NaN throughout.")
        self.n_views_ = len(arrays)
        self.n_features_ = [array.shape[1] for array in arrays]
        known = [array[here] for array, here in zip(arrays, present)]
        self._mean = [array.mean(0) for array in known]
        self._divisor = [np.where(array.std(0) > 0, array.std(0), 1.0) for array in known]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):  # the user's own random numbers stay as they are
            torch.manual_seed(seed)
            self.net_: MultiViewNet = build_net(
                [(d,) for d in self.n_features_],
                encoder={"kind": "mlp", "width": self.width, "depth": self.depth},
                projector={"hidden": None, "out_features": self.n_components},
            )
            views = [torch.from_numpy(self._scaled(l, array)).float() for l, array in enumerate(arrays)]
            self.loss_curve_ = self._train(loss, views, torch.from_numpy(present))
        self.net_.double().eval()
        return self

    def _train(self, loss: losses.ViewLoss, views: list[Tensor], mask: Tensor) -> list[float]:
        n, k = mask.shape[1], len(views)
        size = min(self.batch_size, n)
        subsets: list[list[int]] = [list(range(k))]
        if loss.visits_all_tuples and size**k > QUICK_TUPLES:
            subsets = [list(s) for s in itertools.combinations(range(k), 3)]
        per_epoch = max(1, n // size)
        total = self.epochs * per_epoch
        order = torch.empty(0)

        def rate(step: int) -> float:
            warmup = min(2 * per_epoch, total // 10)
            return warmup_cosine(step, total=total, warmup=warmup, peak=self.learning_rate, floor=0.0)

        def value(step: int) -> Tensor:
            nonlocal order
            epoch, place = divmod(step, per_epoch)
            order = order if place else torch.randperm(n)
            rows = order[place * size : (place + 1) * size]
            points = self.net_([view[rows] for view in views])
            found = torch.stack([_compared(loss, points[s], mask[s][:, rows]) for s in subsets]).mean()
            if not math.isfinite(found.item()):
                raise ValueError(f"the loss is no longer finite in epoch {epoch + 1}: try a smaller learning_rate.")
            return found

        optimizer = adamw(self.net_, AdamSettings(self.learning_rate, (0.9, 0.95), 1e-8))
        steps = descend(optimizer, value, steps=total, rate=rate, before_step=lambda: clip(self.net_.parameters(), 1.0))
        curve = [found.item() for _, found in steps]
        return [float(part) for part in np.reshape(curve, (self.epochs, per_epoch)).mean(1)]

    def _scaled(self, l: int, array: np.ndarray) -> np.ndarray:
        return np.asarray(np.nan_to_num((array - self._mean[l]) / self._divisor[l], nan=0.0))

    @torch.no_grad()
    def _embed(self, X: Sequence[Any] | Views) -> tuple[Tensor, Tensor]:
        check_is_fitted(self, "net_")
        arrays = as_views(X)
        if len(arrays) != self.n_views_:
            raise ValueError(
                f"X must be {self.n_views_} arrays, one per view, None for an absent one, got {len(arrays)}."
            )
        n = next((len(array) for array in arrays if array is not None), 0)
        if n == 0:
            raise ValueError("X must have at least one view, got None for all of them.")
        net: MultiViewNet = self.net_
        points = torch.zeros(self.n_views_, n, self.n_components, dtype=torch.float64)
        mask = torch.zeros(self.n_views_, n, dtype=torch.bool)
        for l, array in enumerate(arrays):
            if array is None:
                continue
            if array.shape[1] != self.n_features_[l]:
                raise ValueError(f"X must have {self.n_features_[l]} features in view {l}, got {array.shape[1]}.")
            mask[l] = torch.from_numpy(~np.isnan(array).all(1))
            points[l] = net.embed_view(torch.from_numpy(self._scaled(l, array)), l)
        return points, mask


class ColumnBlockEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """`MultiViewEmbedding` of one array whose columns are the views side by side.

    Args:
        blocks: the numbers of columns of the k views, which add up to those of X; or k, for views of about one size.
        others: as in `MultiViewEmbedding`.

    A block of a row may be NaN throughout, an absent view. The tag `allow_nan` stays false, since NaN in a single entry
    is refused.

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
        loss_options: Mapping[str, Any] | None = None,
        width: int = 128,
        depth: int = 2,
        epochs: int = 20,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        random_state: Any = None,
    ) -> None:
        self.blocks = blocks
        self.n_components = n_components
        self.loss = loss
        self.loss_options = loss_options
        self.width = width
        self.depth = depth
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def fit(self, X: Any, y: Any = None) -> ColumnBlockEmbedding:
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
        self.widths_ = self._widths(X.shape[1])
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "blocks"}
        self.embedding_ = MultiViewEmbedding(**options).fit(self._split(X))
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "embedding_")
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        return self.embedding_.transform(self._split(X))

    def _split(self, X: np.ndarray) -> list[np.ndarray]:
        return np.split(X, np.cumsum(self.widths_)[:-1], axis=1)

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


def _compared(loss: Any, points: Tensor, mask: Tensor) -> Tensor:
    """The loss of the rows that have any of these views."""
    seen = mask.any(0)
    value: Tensor = loss(points[:, seen], mask=None if bool(mask.all()) else mask[:, seen])
    return value
