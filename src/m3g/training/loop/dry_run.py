"""Dry run (`m3g train --dry-run`): build everything and run one batch without writing files."""

from __future__ import annotations

import torch

from m3g.data import ViewsData
from m3g.training.loop.build import build_data, build_module, warn_about_small_batches
from m3g.training.loop.light import place, step_loss, training_rows
from m3g.training.settings.config import Config
from m3g.training.settings.views import view_lines, with_data_defaults


def dry_run(config: Config, *, data: ViewsData | None = None, trust: bool = False) -> str:
    """Build data, network, loss and optimiser, run one batch forward and backward on the CPU, and return a summary.

    If the data has fewer rows than a batch, all of them are used: a folder of ten images is sufficient to test the
    settings of a large run.
    """
    data = build_data(config) if data is None else data
    module = build_module(config, data, trust=trust)
    warn_about_small_batches(config, module.loss, data)
    rows = data.num_rows("train")
    number = min(data.batch_size, rows)
    if number < 2:
        raise ValueError(f"a batch must have at least 2 training rows to compare, got {number}.")
    batch = data.on_after_batch_transfer(training_rows(data, list(range(number))), 0)
    place(module, config, per_epoch=max(1, rows // data.batch_size))
    module.configure_optimizers()
    module.train()
    loss = step_loss(module, batch, 0)
    loss.backward()
    module.on_before_optimizer_step(None)
    parameters = sum(parameter.numel() for parameter in module.net.parameters())
    views = "\n".join(view_lines(with_data_defaults(config, data), data, columns=True))
    notes = "".join(f"note: {note}\n" for note in data.notes)
    full_batch = "" if number == data.batch_size else f" (a batch has {data.batch_size})"
    for_more_rows = "" if number == data.batch_size else f" for at least {data.batch_size} training rows"
    with torch.no_grad():
        return (
            f"data        {rows} training rows of {data.k} views\n{views}\n{notes}"
            f"network     {parameters:,} parameters\n"
            f"loss        {config.loss}: {float(loss):.4f} on {number} rows{full_batch}\n"
            f"the settings are valid{for_more_rows}; nothing was written"
        )
