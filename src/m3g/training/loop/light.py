"""Training loop on one CPU without Lightning's trainer, whose start-up takes as long as a short run.

It is used by laptop runs of the experiments and their references, `m3g train --dry-run` and the scikit-learn
estimators. Logs, precisions, strategies and several processes require `m3g train`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from m3g.training.loop.seeds import seed_everything

if TYPE_CHECKING:  # the scikit-learn estimators train without Lightning
    from lightning.pytorch import Trainer

    from m3g.data import ViewsData
    from m3g.data.batch import Batch
    from m3g.data.sampling import Draw
    from m3g.training.loop.module import MultiViewModule
    from m3g.training.settings.config import Config


@dataclass
class Position:
    """Position in a training run.

    Attributes:
        total: number of optimiser steps of the run.
        epochs: number of epochs of the run.
        step: number of finished optimiser steps.
        batch: number of finished batches.
        batches_per_step: number of batches per optimiser step, over all processes.
        skips_overflow: whether the trainer discards steps with non-finite gradients, as with 16-mixed.
    """

    total: int
    epochs: int
    step: int = 0
    batch: int = 0
    batches_per_step: int = 1
    skips_overflow: bool = False

    @classmethod
    def of(cls, trainer: Trainer) -> Position:
        """Return the position of a trainer."""
        return cls(
            total=int(trainer.estimated_stepping_batches),
            epochs=trainer.max_epochs or 1,
            step=trainer.global_step,
            batch=trainer.fit_loop.epoch_loop.total_batch_idx,
            batches_per_step=trainer.world_size * trainer.accumulate_grad_batches,
            skips_overflow=getattr(trainer.precision_plugin, "scaler", None) is not None,
        )


def descend(
    optimizer: torch.optim.Optimizer,
    value: Callable[[int], Tensor],
    *,
    steps: int,
    start: int = 0,
    rate: Callable[[int], float] | None = None,
    before_step: Callable[[], object] | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Run optimiser steps; yield the number and the loss of each.

    Args:
        optimizer: optimiser of the trained parameters.
        value: returns the loss of a step.
        steps, start: the steps `start`, ..., `steps - 1` are executed.
        rate: returns the learning rate of a step; by default that of the optimiser.
        before_step: called between the backward pass and the step, to validate or clip gradients.

    Example:
        >>> x = nn.Parameter(torch.tensor(1.0))
        >>> losses = descend(torch.optim.SGD([x], lr=0.5), lambda step: x.square() / 2, steps=3)
        >>> [float(loss) for _, loss in losses]
        [0.5, 0.125, 0.03125]
    """
    for step in range(start, steps):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = value(step)
        loss.backward()
        if before_step is not None:
            before_step()
        optimizer.step()
        yield step, loss.detach()


def training_rows(data: ViewsData, rows: Sequence[int] | Sequence[Draw]) -> Batch:
    """Return a batch of training rows, given by their numbers or by draws of the sampler."""
    batch: Batch = data.datasets["train"].__getitems__(rows)  # type: ignore[attr-defined]
    return batch


def batches(data: ViewsData, *, start: int = 0) -> Iterator[Batch]:
    """Yield batches of the training rows indefinitely, from batch `start` on.

    Their order is that of `m3g train` with one process.
    """
    sampler = data.sampler()
    epoch, done = divmod(start, sampler.num_steps)
    while True:
        sampler.set_epoch(epoch)
        sampler.resume(epoch=epoch, batches=done)
        draws = list(sampler)
        for first in range(0, len(draws), data.batch_size):
            yield training_rows(data, draws[first : first + data.batch_size])
        epoch, done = epoch + 1, 0


def place(module: MultiViewModule, config: Config, *, per_epoch: int) -> None:
    """Place a training module at its first step, for use without a trainer.

    Call this before building the optimiser, because its settings are scaled by a factor that is computed here from the
    batch size.
    """
    epochs, max_steps = config.loop.num_epochs(per_epoch), config.loop.max_steps
    total = per_epoch * epochs if max_steps is None else min(max_steps, per_epoch * epochs)
    module.position = Position(total=total, epochs=epochs)
    module.setup("fit")


def step_loss(module: MultiViewModule, batch: Batch, step: int) -> Tensor:
    """Return the loss of a placed module at a step, with the random numbers of that step."""
    assert module.position is not None
    module.position.step = module.position.batch = step
    seed_everything(module.seed, 1 + step)
    return module.training_step(batch, step)


def fit_module(
    module: MultiViewModule,
    data: ViewsData,
    optimizer: torch.optim.Optimizer,
    *,
    clip_norm: float | None,
    start: int = 0,
) -> Iterator[int]:
    """Execute the steps of `m3g train` with a placed module, from `start` on; yield each finished step's number."""
    assert module.position is not None
    total = module.position.total
    feed = batches(data, start=start)

    def value(step: int) -> Tensor:
        loss = step_loss(module, next(feed), step)
        module.set_rates(optimizer, step)
        return loss

    def validate_and_clip() -> None:
        module.on_before_optimizer_step(optimizer)
        clip(module.parameters(), clip_norm)

    module.train()
    for step, _ in descend(optimizer, value, steps=total, start=start, before_step=validate_and_clip):
        module.update_teacher(step)
        yield step
    module.eval()


def clip(parameters: Iterable[nn.Parameter], norm: float | None) -> None:
    """Clip the norm of the gradients; no effect for None."""
    if norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, norm)
