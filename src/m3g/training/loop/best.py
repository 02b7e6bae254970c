"""Early stopping on the validation split: the best network is kept, and training ends once it no longer improves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor

from m3g.costs import Cost
from m3g.data import ViewsData
from m3g.evaluation.linear_cca import mean_reciprocal_rank, rank_contributions
from m3g.evaluation.retrieval import recall_from_others
from m3g.nets import MultiViewNet
from m3g.training.loop.module import MultiViewModule
from m3g.training.loop.start import fitted_views
from m3g.training.runs.embed import embed
from m3g.training.settings.config import LoopSettings

ROWS = 2000  # maximum number of evaluated validation rows
FEWEST_ROWS = 10  # with fewer validation rows, the score is not informative
EVALUATIONS = 25  # approximate number of evaluations in a run
SMALLEST_GAIN = 0.005  # smaller improvements of the score are noise with a few hundred rows
SHARES = tuple(tenth / 10 for tenth in range(1, 10))  # weights of the best network in its average with linear CCA


def can_stop_early(data: ViewsData) -> bool:
    """Return whether there are enough validation rows with one true partner per view.

    Augmented images and class-aligned images have no such partners.
    """
    known = getattr(data.datasets["train"], "index", None) is not None and data.held_out_batches() is None
    return known and data.num_rows("val") >= FEWEST_ROWS


def validation_score(net: MultiViewNet, data: ViewsData, readout: Cost | None) -> float:
    """Return the mean reciprocal rank of the true partner, or with a readout the recall from all other views."""
    points = embed(net, data, "val", most=ROWS)
    assert points.embeddings is not None
    if readout is None:
        return mean_reciprocal_rank(points.embeddings, points.mask)
    recalls = [recall_from_others(points, m, readout=readout) for m in range(data.k)]
    return statistics.fmean([value for value in recalls if value is not None] or [math.nan])


def validation_ranks(net: MultiViewNet, data: ViewsData) -> Tensor:
    """Return the contribution of each validation row to the mean reciprocal rank, (n,)."""
    points = embed(net, data, "val", most=ROWS)
    assert points.embeddings is not None
    return rank_contributions(points.embeddings, points.mask)


def not_worse(contributions: Tensor, best: Tensor) -> bool:
    """Return whether the sum of `contributions` (n,) is within one standard error of the sum of `best`, or above it.

    The standard error is that of the difference, paired by row.

    Example:
        >>> best = torch.tensor([0.2, 0.2, 0.2, 0.2])
        >>> not_worse(best - torch.tensor([0.1, 0.0, 0.0, 0.0]), best), not_worse(best - 0.1, best)
        (False, False)
        >>> not_worse(best - torch.tensor([0.1, -0.1, 0.1, 0.0]), best)
        True
    """
    deficit = best - contributions
    return float(deficit.sum()) <= float((deficit - deficit.mean()).norm())


def keep_best(loop: LoopSettings, data: ViewsData) -> list[KeepBest]:
    """Return the callback that stops early, if the settings and the data allow it; requires `loop.epochs`."""
    if not (loop.patience and loop.epochs and can_stop_early(data)):
        return []
    return [KeepBest(every=max(1, round(loop.epochs / EVALUATIONS)), patience=loop.patience)]


class KeepBest(Callback):
    """Keep the weights with the best validation score, and stop after `patience` evaluations without a better one.

    The best weights, which may be those before the first step, are part of the checkpoint: a resumed run ends with the
    same network.

    If all encoders start at linear CCA, the result is a weighted average of the best weights and those of the start.
    The best weights have the smallest share whose score is within one standard error of the best score, paired by row.
    Among networks that do not differ significantly on the validation rows, the one closest to linear CCA overfits the
    training rows least, and linear probes on it are more accurate (docs/results/defaults.md).

    Args:
        every: epochs between two evaluations.
        patience: evaluations without improvement after which training stops.

    Attributes:
        best, epoch, weights: the best score, its epoch and its weights.
        start: the weights of linear CCA; empty if the encoders start otherwise.
        share: fraction of the best weights in the average; 1 without averaging.

    References: M. Wortsman et al., *Robust fine-tuning of zero-shot models*, 2022, for the average; T. Hastie,
    R. Tibshirani, J. Friedman, *The Elements of Statistical Learning*, section 7.10, for the standard error.
    """

    def __init__(self, *, every: int, patience: int) -> None:
        self.every, self.patience = every, patience
        self.best, self.epoch, self.since, self.stopped = -math.inf, 0, 0, False
        self.epochs: int | None = None
        self.weights: dict[str, Tensor] = {}
        self.start: dict[str, Tensor] = {}
        self.share = 1.0

    def state_dict(self) -> dict[str, object]:
        names = ("best", "epoch", "since", "stopped", "epochs", "weights", "start")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.weights:  # a new run; a resumed run has the best weights so far
            assert isinstance(pl_module, MultiViewModule)
            self._evaluate(trainer, pl_module, epoch=0)
            if _starts_at_linear_cca(pl_module) and not isinstance(trainer.strategy, FSDPStrategy):
                self.start = self.weights
        if self.epochs != trainer.max_epochs:  # the run was extended
            self.since, self.stopped, self.epochs = 0, False, trainer.max_epochs
        if self.stopped:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if epoch % self.every == 0 or epoch == trainer.max_epochs:
            self._evaluate(trainer, pl_module, epoch=epoch)
            if self.since >= self.patience:
                self.stopped = trainer.should_stop = True

    def _evaluate(self, trainer: Trainer, pl_module: LightningModule, *, epoch: int) -> None:
        assert isinstance(pl_module, MultiViewModule)
        data: ViewsData = trainer.datamodule  # type: ignore[attr-defined]
        score = trainer.strategy.broadcast(validation_score(pl_module.net, data, pl_module.loss.readout))
        self.since += 1
        if score > self.best + SMALLEST_GAIN:  # not `self.weights`, which may exist in rank 0 only
            self.best, self.epoch, self.since = score, epoch, 0
            state = trainer.strategy.lightning_module_state_dict()  # a collective call if the weights are sharded
            self.weights = {
                name.removeprefix("net."): value.detach().cpu().clone()
                for name, value in state.items()
                if name.startswith("net.")
            }

    def chosen(self, trainer: Trainer, module: MultiViewModule) -> dict[str, Tensor]:
        """Return the weights to keep after training, and set `share`; called by all processes."""
        if not (self.start and self.epoch):
            return self.weights
        net, data = module.net, trainer.datamodule  # type: ignore[attr-defined]
        net.load_state_dict(self.weights)
        best = validation_ranks(net, data)
        for share in SHARES:
            average = {name: torch.lerp(part, self.weights[name], share) for name, part in self.start.items()}
            net.load_state_dict(average)
            if trainer.strategy.broadcast(not_worse(validation_ranks(net, data), best)):
                self.share = share
                return average
        return self.weights

    def described(self, num_epochs: int) -> str:
        """Return a line for the log, after `chosen`."""
        when = f"of epoch {self.epoch} of {num_epochs}" if self.epoch else "before the first step"
        early = f", training stopped early (--loop.patience {self.patience})" if self.stopped else ""
        line = f"kept the network {when}, the best on the validation split{early}"
        if self.share < 1:
            line += (
                f"\nits weights have a share of {self.share:g} in their average with linear CCA, which is within one "
                "standard error on the validation split"
            )
        return line


def _starts_at_linear_cca(module: MultiViewModule) -> bool:
    every_view = len(fitted_views(module.net)) == len(module.net.encoders)
    return every_view and bool(module.started_at) and module.loss.readout is None
