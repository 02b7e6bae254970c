"""`MultiViewEmbedding`: estimator that maps a list or a dict of tables to one representation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from m3g import _checks, losses
from m3g._options import Options
from m3g.evaluation.embedded import off_diagonal_mean, read_out
from m3g.evaluation.retrieval import retrieval
from m3g.nets import MultiViewNet, build_net
from m3g.sklearn.fitting import EarlyStopping, Rows, epoch_losses, split, start_at_linear_cca, steps_per_epoch
from m3g.sklearn.views import Tables, Views, as_views
from m3g.training.loop.optim import AdamSettings, adamw, warmup_cosine
from m3g.training.settings.config import LoopSettings, OptimSettings

if TYPE_CHECKING:
    import pandas as pd

RandomState = int | np.random.RandomState | None


class MultiViewEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embedding of k views in one space, by encoders that are trained with a loss of k views.

    Args:
        n_components: number of features of the representation.
        loss: name of a loss that requires no teacher, from `m3g.losses.available()`.
        loss_options: options of the loss, such as `{"temperature": 0.2}`.
        width, depth: width and depth of the perceptrons, one per view.
        epochs: maximum number of passes over the rows; None means 20, or more if 20 passes have fewer than 600 steps.
        batch_size: number of rows per batch.
        learning_rate: peak learning rate of AdamW.
        validation_fraction: fraction of the rows held out for early stopping. If these are fewer than ten rows, none
            are held out and training does not stop early.
        random_state: seed of all random numbers, such as the initial weights, the held-out rows and the order of rows.
            Results are reproducible on one machine.

    Views are a list of arrays or DataFrames, or a dict of them by name; a name omitted in `transform` is a missing
    view. If all values of a row in a view are NaN, the entry is missing. Features are standardised.

    Training works as in `m3g train`, with smaller networks. An encoder is a linear map plus a perceptron, and starts at
    linear CCA of the views. The network with the best retrieval on the held-out rows is kept, and its weights are
    averaged with those of linear CCA, unless the loss compares a view with a product of the others. The weight of
    linear CCA is the largest multiple of 0.1, from 0 to 0.9, for which retrieval on these rows is within one standard
    error of the best. If a solve with all views would be slow, the losses `m3g` and `kl` compare random subsets of the
    views.

    Attributes:
        net_: the trained network.
        n_views_, n_features_: k, and the number of features of each view.
        view_names_: the names of the views; None if they were a list.
        feature_names_: the column names of every view, None for a view without names.
        loss_curve_: the mean loss of every epoch.
        best_epoch_: the epoch with the best retrieval on held-out rows, 0 for the initial network; the last epoch if no
            rows are held out.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> objects = rng.standard_normal((64, 4))
        >>> views = [objects @ rng.standard_normal((4, d)) for d in (5, 6, 7)]
        >>> model = MultiViewEmbedding(n_components=3, epochs=2, random_state=0).fit(views)
        >>> model.transform([views[0], None, None]).shape  # new rows with one known view
        (64, 3)
        >>> model.get_feature_names_out().tolist()
        ['multiviewembedding0', 'multiviewembedding1', 'multiviewembedding2']
    """

    def __init__(
        self,
        n_components: int = 16,
        *,
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
        self.n_components = n_components
        self.loss = loss
        self.loss_options = loss_options
        self.width = width
        self.depth = depth
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def fit(self, X: Tables, y: object = None) -> MultiViewEmbedding:
        """Train on k tables (n, d_l) whose row i describes object i; y is not used."""
        loss = self._loss()
        all_rows = self._rows(self._set_up(X))
        with self._training():
            rows, held_out = split(all_rows, self.validation_fraction)
            from_linear_cca = self._initialise(rows)
            per_epoch = steps_per_epoch(rows.num_rows(), self.batch_size)
            epochs = LoopSettings(epochs=self.epochs).num_epochs(per_epoch)
            total, warmup = epochs * per_epoch, min(2 * per_epoch, epochs * per_epoch // 10)
            stopping = None
            if held_out is not None:
                stopping = EarlyStopping(self.net_, held_out, loss, epochs=epochs, from_linear_cca=from_linear_cca)

            def rate(step: int) -> float:
                return warmup_cosine(step, total=total, warmup=warmup, peak=self.learning_rate, floor=0.0)

            self.loss_curve_ = []
            for value in epoch_losses(
                self.net_, rows, loss, self._optimizer, batch_size=self.batch_size, epochs=epochs, rate=rate
            ):
                self.loss_curve_.append(value)
                if stopping is not None and stopping.stops_after(len(self.loss_curve_)):
                    break
            if stopping is not None:
                stopping.restore()
            self.best_epoch_ = len(self.loss_curve_) if stopping is None else stopping.best.epoch
        return self

    def partial_fit(self, X: Tables, y: object = None) -> MultiViewEmbedding:
        """Train for one pass over these rows with the constant rate `learning_rate`; y is not used.

        Unless `fit` was called before, the first call requires every view and sets up the network, which starts at
        linear CCA of these rows. In later calls, views may be missing, and the means and scales of the features are
        updated. No rows are held out.
        """
        new, loss = not hasattr(self, "net_"), self._loss()
        views = self._set_up(X) if new else self._views(X, first=False)
        if not new:
            _check_rows(views)
            for scaler, array in zip(self._scalers, views.arrays):
                if array is not None:
                    scaler.partial_fit(array)
        rows = self._rows(views)
        with self._training():
            if new:
                self.loss_curve_ = []
                self._initialise(rows)
            self.loss_curve_ += epoch_losses(
                self.net_,
                rows,
                loss,
                self._optimizer,
                batch_size=self.batch_size,
                epochs=1,
                rate=lambda step: self.learning_rate,
            )
        self.best_epoch_ = len(self.loss_curve_)
        return self

    def transform(self, X: Tables) -> np.ndarray | pd.DataFrame:
        """Return the mean of the unit embeddings of the present views of each row, (n, n_components).

        A view may be None. `set_output(transform="pandas")` returns a DataFrame with the index of the views.
        """
        points, mask, views = self._embed(X)
        empty = (~mask.any(0)).nonzero()
        if len(empty):
            raise ValueError(f"X must have at least one view of every row, got none in row {int(empty[0])}.")
        means = np.asarray(read_out(points, mask))
        if views.index is not None and _get_output_config("transform", self)["dense"] == "pandas":
            return _checks.extra("pandas", "train").DataFrame(means, index=views.index)  # scikit-learn names columns
        return means

    def transform_views(self, X: Tables) -> np.ndarray:
        """Return the embeddings of every view, (k, n, n_components), not of unit length; NaN for missing entries."""
        points, mask, _ = self._embed(X)
        return np.asarray(torch.where(mask.unsqueeze(-1), points, torch.nan))

    def score(self, X: Tables, y: object = None) -> float:
        """Return R@1 from one view to another, averaged over ordered pairs of views.

        Retrieval among more rows is harder, so scores on different numbers of rows are not comparable. y is not used.
        """
        points, mask, _ = self._embed(X)
        return off_diagonal_mean(retrieval(points, mask=mask).recall[1])

    def _set_up(self, X: Tables) -> Views:
        """Set up scalers, network, optimiser and random state for a new fit; return the validated views."""
        for name in ("n_components", "width", "depth", "epochs", "batch_size"):
            if name != "epochs" or self.epochs is not None:
                _checks.positive_int(name, getattr(self, name))
        _checks.positive("learning_rate", self.learning_rate)
        _checks.fraction("validation_fraction", self.validation_fraction)
        views = self._views(X, first=True)
        arrays = [array for array in views.arrays if array is not None]
        if len(arrays) < max(2, len(views.arrays)):
            raise ValueError(
                "X must have k >= 2 views and no None when fitting, "
                f"got {len(arrays)} arrays for {len(views.arrays)} views."
            )
        if any(np.isnan(array).all() for array in arrays):
            raise ValueError("X must have at least one row of every view, got a view that is NaN throughout.")
        _check_rows(views)
        self.n_views_, self.n_features_ = len(arrays), [array.shape[1] for array in arrays]
        self.view_names_, self.feature_names_ = views.names, views.features
        self._scalers = [StandardScaler().set_output(transform="default").fit(array) for array in arrays]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):  # keep the global random state
            torch.manual_seed(seed)
            self.net_: MultiViewNet = build_net(
                [(d,) for d in self.n_features_],
                encoder={"kind": "residual", "width": self.width, "depth": self.depth},
                projector={"hidden": None, "out_features": self.n_components},
            )
            self._random = torch.get_rng_state()
        defaults = OptimSettings()
        adam = AdamSettings(self.learning_rate, defaults.betas, defaults.eps)
        self._optimizer = adamw(self.net_, adam, weight_decay=defaults.weight_decay)
        return views

    def _initialise(self, rows: Rows) -> bool:
        """Initialise the network with linear CCA; return False if there are too few rows."""
        divisors = [torch.from_numpy(scaler.scale_).float() for scaler in self._scalers]
        return start_at_linear_cca(self.net_, rows, size=self.n_components, divisors=divisors)

    def _views(self, X: Tables, *, first: bool) -> Views:
        """Return the input of a method as validated views, in the order of the fit."""
        views = as_views(X)
        return views if first else views.matched(self.view_names_, self.feature_names_, self.n_features_)

    def _loss(self) -> losses.ViewLoss:
        loss = losses.build(self.loss, **(self.loss_options or {}))
        if loss.needs_teacher:
            raise ValueError(f"loss must be one that works without a teacher, got {self.loss!r}.")
        return loss

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Set the network to training mode in single precision, and use the random state of the estimator."""
        self.net_.float().train()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            yield
            self._random = torch.get_rng_state()
        self.net_.double().eval()

    def _rows(self, views: Views) -> Rows:
        inputs, mask = self._inputs(views)
        return Rows([view.float() for view in inputs], mask)

    def _inputs(self, views: Views) -> tuple[list[Tensor], Tensor]:
        """Return k tensors of standardised features, zero if missing, and the mask (k, n)."""
        inputs, mask = [], torch.zeros(len(views.arrays), len(views), dtype=torch.bool)
        for l, array in enumerate(views.arrays):
            if array is None:
                inputs.append(torch.zeros(len(views), self.n_features_[l], dtype=torch.float64))
                continue
            mask[l] = torch.from_numpy(~np.isnan(array).all(1))
            inputs.append(torch.from_numpy(self._scalers[l].transform(array)).nan_to_num(nan=0.0))
        return inputs, mask

    @torch.no_grad()
    def _embed(self, X: Tables) -> tuple[Tensor, Tensor, Views]:
        check_is_fitted(self, "net_")
        views = self._views(X, first=False)
        inputs, mask = self._inputs(views)
        net: MultiViewNet = self.net_
        points = torch.stack([net.embed_view(view, l) for l, view in enumerate(inputs)])
        return points, mask, views


def _check_rows(views: Views) -> None:
    if len(views) < 2:
        raise ValueError("X must have at least 2 rows, because rows are compared with each other, got 1 sample: n = 1.")
    present = [~np.isnan(array).all(1) for array in views.arrays if array is not None]
    if not np.any(present, axis=0).all():
        raise ValueError("X must have at least one view of every row, got a row that is NaN throughout.")
