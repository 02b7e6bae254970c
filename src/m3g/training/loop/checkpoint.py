"""Checkpoints: written atomically, read without executing code.

On a CPU with the same number of threads, the weights of a resumed run are bitwise identical to those of an
uninterrupted one:

- The checkpoint contains the weights, the teacher, the parameters of the loss, the moments of Adam, the reliabilities
  of entries, the state of early stopping, and Lightning's counts of epochs, batches and optimiser steps.
- Everything else is a function of these counts and of the seed of the run:

  - the order of the data depends on seed and epoch (`data.sampling`); finished batches are skipped;
  - augmentations depend on seed, epoch and position in the epoch (`data.images`);
  - learning rate, weight decay and momentum of the teacher depend on the step (`training.loop.optim`);
  - the views that a step compares or embeds with the teacher depend on seed and batch (`MultiViewModule._random`);
  - dropout and other draws from global generators depend on seed, batch and process: `seed_everything` seeds all
    generators with these before every batch. Creating a data loader must not change the generators, so loaders have
    separate ones.

- A checkpoint is only written between two optimiser steps, so it contains no partially accumulated gradient. It is
  written after the step's row of metrics.csv. Resuming drops the rows of later steps.
- Settings, number of rows and network shapes are compared with those in the checkpoint before anything is changed.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.io import CheckpointIO

from m3g.training.runs.files import atomic
from m3g.training.settings.config import Config, flat
from m3g.training.settings.plain_yaml import plain_yaml

Checkpoint: TypeAlias = dict[str, Any]  # Lightning's checkpoint, with at least the entries `PARTS`
# Entries that m3g adds: the version of the format, the number of training rows, and the settings.
MARK = "m3g_checkpoint"
VERSION = 2  # version 2 added the settings
ROWS = "m3g_rows"
CONFIG = "m3g_config"
# Minimum number of steps between checkpoints at the end of epochs, because writing one may take longer than a step.
SHORT_EPOCH = 10
PARTS = ("state_dict", "optimizer_states", "loops", "global_step")


class AtomicCheckpoints(CheckpointIO):
    """Plugin of Lightning's trainer that writes checkpoints atomically and reads them without executing code.

    Args:
        content: a checkpoint that has already been read; the first load returns it instead of reading the file. With
            the strategy fsdp, each process also reads its shard of the weights from the file.
    """

    def __init__(self, content: Checkpoint | None = None) -> None:
        self._content = content

    def save_checkpoint(
        self, checkpoint: Checkpoint, path: str | os.PathLike[str], storage_options: object = None
    ) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Serialised in memory, because torch.save to a file raises a RuntimeError instead of an OSError if the disk is
        # full.
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        with atomic(path) as file:
            file.write(buffer.getbuffer())

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: object = None, weights_only: bool | None = None
    ) -> Checkpoint:
        content, self._content = self._content, None  # released, so that the trainer has the only copy
        return read_checkpoint(path) if content is None else content

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        Path(path).unlink(missing_ok=True)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint of `m3g train`; reject other files without executing code."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"checkpoint must be a file written by m3g train, but there is none at {path}.")
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not compare the checksums it writes
            if (part := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {part} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # another file may raise any error
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()  # torch colours its message
        reason = text.splitlines()[0][:160] if text else type(error).__name__
        raise ValueError(
            f"checkpoint must be a file written by m3g train, but {path} is damaged or was written by "
            f"another program ({reason}): restore it from a copy, or start a new run."
        ) from error
    if not isinstance(content, Mapping) or MARK not in content:
        raise ValueError(
            f"checkpoint must be a file written by m3g train, but {path} was written by another program: "
            "start a new run."
        )
    if content[MARK] != VERSION:
        raise ValueError(
            f"checkpoint must have format {VERSION}, but {path} has format {content[MARK]}: "
            "use the m3g version that wrote it."
        )
    return dict(content)


def check_fits(
    content: Checkpoint, module: LightningModule, path: str | os.PathLike[str], *, rows: int | None = None
) -> None:
    """Reject a checkpoint of another network or number of training rows; the error names the first difference."""
    missing = [name for name in PARTS if name not in content]
    if missing:
        raise ValueError(f"checkpoint must be a file written by m3g train, but {path} has no {missing[0]}.")
    if rows is not None and content.get(ROWS, rows) != rows:
        raise ValueError(
            f"data must have the {content[ROWS]} training rows with which the run started, got {rows}: restore the "
            "data, or start a new run."
        )
    shapes, expected = (
        {name: tuple(tensor.shape) for name, tensor in state.items()}
        for state in (content["state_dict"], module.state_dict())
    )
    for name in {**expected, **shapes}:
        if shapes.get(name) != expected.get(name):
            raise ValueError(
                f"{path} must contain the weights of the network in config.yaml, but belongs to another: {name} has "
                f"shape {shapes.get(name)} in the file and {expected.get(name)} in the network."
            )


def check_settings(
    content: Checkpoint, config: Config, path: str | os.PathLike[str], *, extended: bool = False
) -> None:
    """Reject settings that differ from those in the checkpoint, for example after an edit of config.yaml.

    With `extended`, the number of epochs may differ.
    """
    stored = plain_yaml(str(content.get(CONFIG, "{}")))
    # A setting that is missing from an older checkpoint had its default.
    before = {**flat(Config().to_dict()), **flat(stored)} if stored and isinstance(stored, dict) else {}
    now = flat(config.to_dict())
    changes = [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in {**before, **now}
        if before.get(name) != now.get(name) and not (extended and name == "loop.epochs")
    ]
    if changes:
        shown = "; ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
        raise ValueError(
            f"config.yaml must match the settings in {path}, but it was changed ({shown}): change it back, or "
            "use --accept_changes to continue with the new settings."
        )


class SaveCheckpoints(Callback):
    """Callback that writes `last.ckpt` before the first step, every `every` optimiser steps, and at the end of epochs.

    The checkpoint at the end of an epoch is omitted if the last one is fewer than min(`SHORT_EPOCH`, `every`) steps
    old, except after a multiple of `every` steps and at the end of the run.

    The first checkpoint exposes a full disk or a missing permission immediately, and allows a run that is killed early
    to be resumed. Checkpoints contain the number of training rows and the settings.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int, rows: int, config: Config) -> None:
        self.path = Path(folder) / "last.ckpt"
        self.every = every
        self.notes = {MARK: VERSION, ROWS: rows, CONFIG: config.to_yaml()}
        self._saved_at: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at = trainer.global_step
        # The first process decides for all, because a slower one would find the file that the first has just written.
        if not trainer.strategy.broadcast(self.path.exists()):
            self._save(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        # `global_step` is unchanged while gradients are accumulated. The last step of an epoch is saved by
        # `on_train_epoch_end`.
        due = trainer.global_step % self.every == 0 and trainer.global_step != self._saved_at
        if due and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._save(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        step = trainer.global_step
        ends = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs or step == trainer.max_steps
        if ends or step % self.every == 0 or step - (self._saved_at or 0) >= min(SHORT_EPOCH, self.every):
            self._save(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: Checkpoint) -> None:
        checkpoint.update(self.notes)

    def _save(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, parameter in pl_module.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise ValueError(
                    f"training stopped at step {trainer.global_step}: {name} is no longer finite, and the "
                    f"last good checkpoint is {self.path}; try a smaller learning rate."
                )
        trainer.save_checkpoint(self.path)
        self._saved_at = trainer.global_step
