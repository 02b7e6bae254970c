"""Early stopping on the validation split: the best network is kept, and training ends if it is not improved."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from m3g.costs import Cost
from m3g.data import ViewsData
from m3g.evaluation.linear_cca import mean_reciprocal_rank
from m3g.evaluation.retrieval import recall_from_others
from m3g.nets import MultiViewNet
from m3g.training.loop.module import MultiViewModule
from m3g.training.runs.embed import embed
from m3g.training.settings.config import LoopSettings

ROWS = 2000  # maximum number of evaluated validation rows
FEWEST_ROWS = 10  # the score of fewer is not informative
EVALUATIONS = 25  # approximate number in a whole run
SMALLEST_GAIN = 0.005  # of the score; a smaller one is within the noise of a few hundred rows


def can_stop_early(data: ViewsData) -> bool:
    """Return whether validation rows have one partner in each view, rather than any of an image or a class."""
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


def keep_best(loop: LoopSettings, data: ViewsData) -> list[KeepBest]:
    """Return the callback that stops early, if the settings and the data allow it; requires `loop.epochs`."""
    if not (loop.patience and loop.epochs and can_stop_early(data)):
        return []
    return [KeepBest(every=max(1, round(loop.epochs / EVALUATIONS)), patience=loop.patience)]


class KeepBest(Callback):
    """Keep the weights with the best validation score, and stop after `patience` evaluations without a better one.

    The best weights, which may be those before the first step, are part of the checkpoint: a resumed run ends with the
    same network.

    Args:
        every: epochs between two evaluations.
        patience: evaluations without improvement after which training stops.
    """

    def __init__(self, *, every: int, patience: int) -> None:
        self.every, self.patience = every, patience
        self.best, self.epoch, self.since, self.stopped = -math.inf, 0, 0, False
        self.epochs: int | None = None
        self.weights: dict[str, Tensor] = {}

    def state_dict(self) -> dict[str, object]:
        names = ("best", "epoch", "since", "stopped", "epochs", "weights")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.weights:  # a new run: a resumed one has the best so far
            self._evaluate(trainer, pl_module, epoch=0)
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
        if score > self.best + SMALLEST_GAIN:  # weights may be present in rank 0 alone, so they must not decide
            self.best, self.epoch, self.since = score, epoch, 0
            state = trainer.strategy.lightning_module_state_dict()  # a collective call with shards
            self.weights = {
                name.removeprefix("net."): value.detach().cpu().clone()
                for name, value in state.items()
                if name.startswith("net.")
            }
