"""Output during a run: a progress bar or one line per epoch, and CSV files of numbers."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from m3g.training.runs.files import append_text, write_text

# A run with more epochs prints at least this many lines, unless it stops early, and fewer than twice as many.
MIN_EPOCH_LINES = 50
SHOWN = ("loss", "gap", "solver_steps", "epsilon")  # metrics in a line


class Table:
    """CSV file to which rows are appended; its columns are those of the first row.

    It can be read while it is written, because a partially written last line is ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] | None = None

    def append(self, row: Mapping[str, float]) -> None:
        new = False
        if self._columns is None:
            lines = self._whole_lines()
            new = not lines
            self._columns = next(csv.reader(lines), list(row))
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, restval="", extrasaction="ignore", lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)
        append_text(self.path, text.getvalue())

    def rows(self) -> list[dict[str, float]]:
        """Return all rows as numbers, without missing values."""
        header, *rows = list(csv.reader(self._whole_lines())) or [[]]
        return [
            {name: value for name, value in zip(header, self._numbers(row, line, header)) if value is not None}
            for line, row in enumerate(rows, start=2)
        ]

    def _numbers(self, row: list[str], line: int, header: list[str]) -> list[float | None]:
        """Return the numbers of a row; None for an empty cell."""
        try:
            if len(row) > len(header):
                raise ValueError
            return [float(cell) if cell else None for cell in row]
        except ValueError as error:
            raise ValueError(
                f"{self.path} must have at most {len(header)} numbers in each row, got {','.join(row)[:80]!r} in line "
                f"{line}: remove the line."
            ) from error

    def drop_after(self, step: int) -> None:
        """Drop rows that a killed run wrote after the checkpoint from which it is resumed, and a partial row."""
        if self.path.exists():
            header, *rows = self._whole_lines() or [""]
            names = next(csv.reader([header]), [])
            cells = [self._numbers(next(csv.reader([row]), []), i, names) for i, row in enumerate(rows, start=2)]
            kept = [row for row, numbers in zip(rows, cells) if numbers and (numbers[0] or 0) <= step]
            write_text(self.path, header + "".join(kept))

    def _whole_lines(self) -> list[str]:
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [line for line in lines if line.endswith("\n")]


class MetricsFile(Callback):
    """Callback that writes a row of `metrics.csv` per logged optimiser step, before the step's checkpoint."""

    def __init__(self, folder: Path, *, every: int) -> None:
        self.table = Table(folder / "metrics.csv")
        self.every = every
        self._last = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if trainer.is_global_zero and step != self._last and step % self.every == 0:
            self._last = step
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.table.append({"step": step, "epoch": trainer.current_epoch, **metrics})


class EpochLines(Callback):
    """Callback that prints a line per epoch, for log files and terminals that cannot redraw a progress bar.

    A long run skips epochs: see `MIN_EPOCH_LINES`. A run that is limited by `loop.max_steps` prints at most 40 lines
    with the step instead.
    """

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch, total = trainer.current_epoch + 1, trainer.max_epochs or 1
        shown = epoch % max(1, total // MIN_EPOCH_LINES) == 0 or epoch == total
        if not trainer.is_global_zero or counts_steps(trainer) or not shown:
            return
        began = getattr(self, "_began", None)  # None for an epoch that was resumed midway
        seconds = "" if began is None else f"  {time.perf_counter() - began:.1f} s"
        print(f"epoch {epoch}/{total}  {_shown(trainer)}{seconds}", flush=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        step, total = trainer.global_step, trainer.max_steps
        if not trainer.is_global_zero or not counts_steps(trainer) or step == getattr(self, "_last", 0):
            return
        self._last = step
        if step % max(1, total // 20) == 0 or step == total:
            print(f"step {step}/{total}  {_shown(trainer)}", flush=True)


def counts_steps(trainer: Trainer) -> bool:
    """Return whether `loop.max_steps` limits the run, instead of the number of epochs."""
    return 0 < trainer.max_steps <= steps_per_epoch(trainer) * (trainer.max_epochs or 1)


def steps_per_epoch(trainer: Trainer) -> int:
    return math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)


def _shown(trainer: Trainer) -> str:
    metrics = trainer.callback_metrics
    return "  ".join(f"{name} {float(metrics[name]):.4g}" for name in SHOWN if name in metrics)


class LiveBar(RichProgressBar):
    """Lightning's progress bar without the version number; it shows `loop.max_steps` if that limits the run."""

    @property
    def total_train_batches(self) -> int | float:
        trainer, batches = self.trainer, super().total_train_batches
        if not counts_steps(trainer):
            return batches
        left = trainer.max_steps - trainer.current_epoch * steps_per_epoch(trainer)
        return min(batches, left * trainer.accumulate_grad_batches)

    def _get_train_description(self, current_epoch: int) -> str:
        if counts_steps(self.trainer):
            return f"To step {self.trainer.max_steps}"
        return f"Epoch {current_epoch + 1}/{self.trainer.max_epochs}"

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        items = dict(super().get_metrics(trainer, pl_module))
        items.pop("v_num", None)
        if isinstance(steps := items.get("solver_steps"), float):
            items["solver_steps"] = int(steps)
        return items


def progress() -> Callback:
    """Return the callback for a progress bar in a terminal, or for plain lines elsewhere."""
    return LiveBar(leave=False) if sys.stdout.isatty() else EpochLines()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress messages of Lightning that do not apply to this package."""
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            _ignore_known_warnings()
            yield
    finally:
        for logger, level in zip(loggers, before):
            logger.setLevel(level)


def _ignore_known_warnings() -> None:
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")  # arrays in memory need none
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")  # the teacher
    warnings.filterwarnings("ignore", message=".*have no `validation_step`.*")  # callbacks evaluate
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")  # torchrun starts the processes
    warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*")  # Lightning's use of torch
