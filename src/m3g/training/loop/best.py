"""Early stopping: keep the network with the best validation score, and stop once the score no longer improves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor

from m3g.costs import Cost
from m3g.data import ViewsData
from m3g.evaluation.linear_cca import rank_contributions
from m3g.nets import MultiViewNet
from m3g.training.loop.build import training_index
from m3g.training.loop.module import MultiViewModule
from m3g.training.loop.selection import MIN_ROWS, BestWeights, Weights, epochs_between, retrieval_score
from m3g.training.loop.start import fitted_views
from m3g.training.runs.embed import embed
from m3g.training.settings.config import LoopSettings

ROWS = 2000  # maximum number of evaluated validation rows


def can_stop_early(data: ViewsData) -> bool:
    """Return whether there are enough validation rows, and each row has at most one true partner in each other view.

    The result is False for augmented images and for class-aligned images, whose views are drawn at random from one
    image or class.
    """
    return _partners_are_known(data) and data.num_rows("val") >= MIN_ROWS


def too_few_rows(loop: LoopSettings, data: ViewsData) -> str:
    """Return a line for the log if only the number of validation rows prevents early stopping, else an empty string."""
    if not loop.patience or not _partners_are_known(data) or can_stop_early(data):
        return ""
    return (
        f"no early stopping, because there are {data.num_rows('val')} validation rows and at least {MIN_ROWS} are "
        "required: the last network is kept"
    )


def _partners_are_known(data: ViewsData) -> bool:
    return training_index(data) is not None and data.held_out_batches() is None


def validation_score(net: MultiViewNet, data: ViewsData, readout: Cost | None) -> float:
    """Return `retrieval_score` of at most `ROWS` validation rows."""
    return retrieval_score(embed(net, data, "val", most=ROWS), readout)


def validation_ranks(net: MultiViewNet, data: ViewsData) -> Tensor:
    """Return the contribution of each row of `validation_score` to the mean reciprocal rank, (n,)."""
    points = embed(net, data, "val", most=ROWS)
    assert points.embeddings is not None
    return rank_contributions(points.embeddings, points.mask)


def keep_best(loop: LoopSettings, data: ViewsData) -> list[KeepBest]:
    """Return the callback for early stopping in a list, which is empty if the settings or the data do not allow it."""
    if not (loop.patience and loop.epochs and can_stop_early(data)):
        return []
    return [KeepBest(every=epochs_between(loop.epochs), patience=loop.patience)]


class KeepBest(Callback):
    """Callback that keeps the weights with the best validation score and stops training early.

    The best weights may be the initial ones. The checkpoint contains the best weights, so a resumed run ends with the
    same network. At the end, the best weights may be averaged with the initial ones (`BestWeights`), provided that all
    encoders start at linear CCA, the loss has no readout, and the weights are not sharded.

    Args:
        every: epochs between two evaluations; the initial network and that of the last epoch are always evaluated.
        patience: number of consecutive evaluations without improvement after which training stops.
    """

    def __init__(self, *, every: int, patience: int) -> None:
        self.every, self.patience = every, patience
        self.kept, self.stopped = BestWeights(), False
        self.epochs: int | None = None  # number of epochs when the run was last started, to detect an extension

    def state_dict(self) -> dict[str, object]:
        return {"stopped": self.stopped, "epochs": self.epochs, **vars(self.kept)}

    def load_state_dict(self, state_dict: Mapping[str, object]) -> None:
        for name, value in state_dict.items():
            setattr(self if name in ("stopped", "epochs") else self.kept, name, value)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.kept.weights:  # a new run; a resumed run has the best weights so far
            assert isinstance(pl_module, MultiViewModule)
            self._evaluate(trainer, pl_module, epoch=0)
            if _starts_at_linear_cca(pl_module) and not isinstance(trainer.strategy, ModelParallelStrategy):
                self.kept.start = self.kept.weights
        if self.epochs != trainer.max_epochs:  # a new or an extended run
            self.kept.since, self.stopped, self.epochs = 0, False, trainer.max_epochs
        if self.stopped:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if epoch % self.every == 0 or epoch == trainer.max_epochs:
            self._evaluate(trainer, pl_module, epoch=epoch)
            if self.kept.since >= self.patience and epoch < (trainer.max_epochs or math.inf):
                self.stopped = trainer.should_stop = True

    def _evaluate(self, trainer: Trainer, pl_module: LightningModule, *, epoch: int) -> None:
        assert isinstance(pl_module, MultiViewModule)
        data: ViewsData = trainer.datamodule  # type: ignore[attr-defined]
        score = trainer.strategy.broadcast(validation_score(pl_module.net, data, pl_module.loss.readout))
        if self.kept.improved(score, epoch=epoch):
            state = trainer.strategy.lightning_module_state_dict()  # a collective call if the weights are sharded
            self.kept.weights = {
                name.removeprefix("net."): value.detach().cpu().clone()
                for name, value in state.items()
                if name.startswith("net.")
            }

    def selected_weights(self, trainer: Trainer, module: MultiViewModule) -> Weights:
        """Return the weights to keep after training; called by all processes."""

        def contributions(weights: Weights) -> Tensor:
            module.net.load_state_dict(weights)
            return validation_ranks(module.net, trainer.datamodule)  # type: ignore[attr-defined]

        return self.kept.selected_weights(contributions, broadcast=trainer.strategy.broadcast)

    def outcome(self, num_epochs: int) -> str:
        """Return the outcome for the log, after `selected_weights`."""
        kept = self.kept
        network = f"network of epoch {kept.epoch} of {num_epochs}" if kept.epoch else "initial network"
        early = f"; training stopped early (--loop.patience {self.patience})" if self.stopped else ""
        line = f"kept the {network}, the best on the validation split{early}"
        if kept.share < 1:
            line += (
                f"\naveraged its weights with those of linear CCA ({kept.share:g} trained, {1 - kept.share:g} linear "
                "CCA), because the score of the average is within one standard error of the best"
            )
        return line


def _starts_at_linear_cca(module: MultiViewModule) -> bool:
    every_view = len(fitted_views(module.net)) == len(module.net.encoders)
    return every_view and module.start.at_linear_cca and module.loss.readout is None
