"""Everything that a run builds, and one batch through it, without a file written: `m3g train --dry-run`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from m3g.data import ViewsData
from m3g.training.loop.build import build_data, build_module
from m3g.training.loop.module import MultiViewModule, seed_everything
from m3g.training.settings.config import Config


class Loop(SimpleNamespace):
    """What the training module asks its trainer, for steps that are made without one."""

    def __init__(self, config: Config, data: ViewsData, per_epoch: int) -> None:
        epochs, most = config.loop.epochs, config.loop.max_steps
        total = per_epoch * epochs if most is None else min(most, per_epoch * epochs)
        super().__init__(
            estimated_stepping_batches=total,
            max_epochs=epochs,
            world_size=1,
            accumulate_grad_batches=1,
            global_step=0,
            global_rank=0,
            datamodule=data,
            precision_plugin=None,
            fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(total_batch_idx=0)),
        )

    def attach(self, module: MultiViewModule) -> None:
        """Let the module take its steps here; what it would log is dropped."""
        module._trainer = self  # type: ignore[assignment]
        module.report = lambda loss, batch: None  # type: ignore[method-assign]
        module.setup("fit")

    def at(self, step: int, seed: int) -> None:
        """Stand at a step: its number, and the random numbers that belong to it."""
        self.global_step = step
        self.fit_loop.epoch_loop.total_batch_idx = step
        seed_everything(seed, 1 + step, 0)


def dry_run(config: Config, *, data: ViewsData | None = None, trust: bool = False) -> str:
    """Build data, network, loss and optimiser, take one batch forward and backward on the CPU; says what was found.

    Where the data has fewer rows than a batch, all of them are the batch: a tree of ten images is enough to try the
    settings of a large run.
    """
    data = build_data(config) if data is None else data
    module = build_module(config, data, trust=trust)
    rows: Any = data.datasets["train"]
    number = min(data.batch_size, len(rows))
    if number < 2:
        raise ValueError(f"data must have at least 2 training rows to compare, got {number}.")
    batch = data.on_after_batch_transfer(rows.__getitems__(list(range(number))), 0)
    loop = Loop(config, data, per_epoch=max(1, len(rows) // data.batch_size))
    loop.attach(module)
    module.configure_optimizers()
    loop.at(0, config.seed)
    module.train()
    loss = module.training_step(batch, 0)
    loss.backward()
    module.on_before_optimizer_step(None)
    parameters = sum(parameter.numel() for parameter in module.net.parameters())
    shapes = ", ".join(dict.fromkeys("x".join(map(str, shape)) for shape in data.view_shapes))
    used = "" if number == data.batch_size else f" (a batch is {data.batch_size})"
    with torch.no_grad():
        return (
            f"data        {len(rows)} training rows of {data.k} views ({', '.join(data.view_names)}), {shapes}\n"
            f"network     {parameters:,} parameters\n"
            f"loss        {config.loss}: {float(loss):.4f} on {number} rows{used}\n"
            "the settings are fine; nothing was written"
        )
