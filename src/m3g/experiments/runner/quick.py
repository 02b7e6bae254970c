"""Training of laptop runs without a Lightning trainer, because its start-up takes as long as a small run.

`fit_quickly` executes the same steps as `m3g.training.train` (same module, loss, sampler, schedules, random numbers) in
the loop of `m3g.training.loop.light`, and resumes a killed run. A test compares the two functions.
"""

from __future__ import annotations

import io
import time
from pathlib import Path

import torch
from torch import Tensor

from m3g.data import ViewsData
from m3g.experiments.runner.stacked import stack
from m3g.training import MultiViewModule, build_data, build_module
from m3g.training.loop.light import fit_module, place
from m3g.training.runs.files import atomic
from m3g.training.settings.check import check
from m3g.training.settings.config import Config

SAVE_AFTER = 20.0  # minimum seconds between two checkpoints


def fit_quickly(config: Config, folder: Path, *, stacked: bool = False) -> tuple[MultiViewModule, ViewsData]:
    """Train on one CPU with a configuration, continuing from `folder/quick.ckpt` if it exists; return module and data.

    With `stacked`, the MLPs of all views are evaluated at once (`m3g.experiments.runner.stacked`).
    """
    check(config)
    data = build_data(config)
    module = build_module(config, data)
    if stacked:
        stack(module)
    else:
        _embed_together(module)
    place(module, config, per_epoch=data.sampler().num_steps)
    optimizer = module.configure_optimizers()
    file = folder / "quick.ckpt"
    saved = time.monotonic()
    start = _restore(file, module, optimizer)
    for step in fit_module(module, data, optimizer, clip_norm=config.loop.clip, start=start):
        if time.monotonic() - saved > SAVE_AFTER:
            _save(file, module, optimizer, step + 1)
            saved = time.monotonic()
    return module, data


def _embed_together(module: MultiViewModule) -> None:
    """Let the module embed all views at once if they share an encoder and the result is the same."""
    batch_dependent = (torch.nn.Dropout, torch.nn.modules.batchnorm._BatchNorm)  # output depends on the batch
    shared = len(module.net.encoders) == 1 and module.teacher_settings.student_views is None
    layers = module.net.modules()
    if not shared or module.chunk_size is not None or any(isinstance(layer, batch_dependent) for layer in layers):
        return

    def embed(views: list[Tensor], shown: list[int]) -> tuple[Tensor, Tensor | None]:
        rows = torch.cat([views[l] for l in shown])
        size = (len(shown), len(views[0]))
        student = module.net.embed_view(rows, 0).unflatten(0, size)
        return student, None if module.teacher is None else module.teacher.embed_view(rows, 0).unflatten(0, size)

    module.embed = embed  # type: ignore[method-assign]


def _save(file: Path, module: MultiViewModule, optimizer: torch.optim.Optimizer, step: int) -> None:
    buffer = io.BytesIO()
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, buffer)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic(file) as out:
        out.write(buffer.getbuffer())


def _restore(file: Path, module: MultiViewModule, optimizer: torch.optim.Optimizer) -> int:
    if not file.is_file():
        return 0
    content = torch.load(file, weights_only=True)
    module.load_state_dict(content["module"])
    optimizer.load_state_dict(content["optimizer"])
    return int(content["step"])
