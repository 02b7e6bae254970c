"""Training of the estimators: initialisation with linear CCA, epochs, and early stopping on held-out rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from m3g.evaluation.embedded import Embedded
from m3g.evaluation.linear_cca import LinearCCA, rank_contributions
from m3g.losses import ViewLoss
from m3g.nets import MultiViewNet
from m3g.training.loop.light import clip, descend
from m3g.training.loop.selection import MIN_ROWS, BestWeights, Weights, epochs_between, retrieval_score
from m3g.training.loop.start import set_linear_maps
from m3g.training.loop.subsets import encoder_seconds, sample_if_quicker, select_subsets
from m3g.training.settings.config import LoopSettings


class Rows(NamedTuple):
    """Standardised features of n rows: k tensors (n, d_l), zero if missing, and the mask (k, n)."""

    views: list[Tensor]
    mask: Tensor

    def only(self, rows: Tensor) -> Rows:
        return Rows([view[rows] for view in self.views], self.mask[:, rows])

    def num_rows(self) -> int:
        return self.mask.shape[1]


def split(rows: Rows, fraction: float) -> tuple[Rows, Rows | None]:
    """Return training rows, and held-out rows drawn at random among the rows with two views or more.

    If fewer than ten rows would be held out, return all rows and None.
    """
    n = rows.num_rows()
    paired = (rows.mask.sum(0) > 1).nonzero().flatten()
    chosen = paired[torch.randperm(len(paired))[: round(fraction * n)]]
    if len(chosen) < MIN_ROWS:
        return rows, None
    trained = torch.ones(n, dtype=torch.bool)
    trained[chosen] = False
    return rows.only(trained.nonzero().flatten()), rows.only(chosen)


def start_at_linear_cca(net: MultiViewNet, rows: Rows, *, size: int, divisors: Sequence[Tensor]) -> bool:
    """Set the linear maps of the network to linear CCA of these rows; return False if there are too few rows."""
    try:
        cca = LinearCCA(rows.views, rows.mask, size=size, divisors=divisors)
    except ValueError:
        return False
    set_linear_maps(net, range(len(rows.views)), cca)
    return True


class EarlyStopping:
    """Early stopping by retrieval on held-out rows, as in `m3g train`.

    Args:
        net: the trained network.
        rows: the held-out rows.
        loss: the loss; its `readout` determines the retrieval score.
        epochs: maximum number of epochs.
        from_linear_cca: whether the current weights are those of linear CCA.

    Attributes:
        best: the weights with the best score so far.
    """

    def __init__(self, net: MultiViewNet, rows: Rows, loss: ViewLoss, *, epochs: int, from_linear_cca: bool) -> None:
        self.net, self.rows, self.readout, self.epochs = net, rows, loss.readout, epochs
        self.best = BestWeights()
        self._evaluate(0)
        if from_linear_cca and self.readout is None:
            self.best.start = self.best.weights

    def stops_after(self, epoch: int) -> bool:
        """Evaluate the network if an evaluation is due after this epoch, and return whether training should stop."""
        if epoch % epochs_between(self.epochs) == 0 or epoch == self.epochs:
            self._evaluate(epoch)
        return self.best.since >= LoopSettings.patience

    def restore(self) -> None:
        """Load the best weights, or their average with those of linear CCA (`BestWeights`), into the network."""
        self.net.load_state_dict(self.best.selected_weights(self._contributions))

    def _evaluate(self, epoch: int) -> None:
        if self.best.improved(
            retrieval_score(Embedded(self._points(), mask=self.rows.mask), self.readout), epoch=epoch
        ):
            self.best.weights = {name: value.clone() for name, value in self.net.state_dict().items()}

    def _contributions(self, weights: Weights) -> Tensor:
        self.net.load_state_dict(weights)
        return rank_contributions(self._points(), self.rows.mask)

    def _points(self) -> Tensor:
        training = self.net.training
        with torch.no_grad():
            points = self.net.eval()(self.rows.views)
        self.net.train(training)
        return points


def epoch_losses(
    net: MultiViewNet,
    rows: Rows,
    loss: ViewLoss,
    optimizer: torch.optim.Optimizer,
    *,
    batch_size: int,
    epochs: int,
    rate: Callable[[int], float],
) -> Iterator[float]:
    """Train for `epochs` passes over the rows, and yield the mean loss of each; `rate(step)` is the learning rate.

    Each pass drops the last, incomplete batch.
    """
    n, k = rows.num_rows(), len(rows.views)
    size, per_epoch = min(batch_size, n), steps_per_epoch(n, batch_size)
    subsets = select_subsets(loss, k=k, n=size, encoder_seconds=encoder_seconds(net, k=k, n=size))
    if subsets.size == k:
        sample_if_quicker(loss, k=k, n=size)
    order = torch.empty(0)

    def value(step: int) -> Tensor:
        nonlocal order
        epoch, batch_index = divmod(step, per_epoch)
        order = order if batch_index else torch.randperm(n)
        batch = rows.only(order[batch_index * size : (batch_index + 1) * size])
        points = net(batch.views)
        mean = torch.stack([_subset_loss(loss, points[s], batch.mask[s]) for s in subsets.draw(k)]).mean()
        if not math.isfinite(mean.item()):
            raise ValueError(f"the loss is no longer finite in epoch {epoch + 1}: try a smaller learning_rate.")
        return mean

    curve: list[float] = []
    for _, step_loss in descend(
        optimizer, value, steps=epochs * per_epoch, rate=rate, before_step=lambda: clip(net.parameters(), 1.0)
    ):
        curve.append(step_loss.item())
        if len(curve) == per_epoch:
            yield statistics.fmean(curve)
            curve.clear()


def steps_per_epoch(n: int, batch_size: int) -> int:
    return max(1, n // batch_size)


def _subset_loss(loss: ViewLoss, points: Tensor, mask: Tensor) -> Tensor:
    """Return the loss of a subset of the views, over the rows that have any of them."""
    rows = mask.any(0)
    value: Tensor = loss(points[:, rows], mask=None if bool(mask.all()) else mask[:, rows])
    return value
