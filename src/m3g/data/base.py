"""What every data module offers: k views of the same points, in splits, in batches of one shape."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from m3g import _checks
from m3g.data.sampling import EpochSampler
from m3g.data.splits import SPLITS, Split

MOST_WORKERS = 64  # or twice the processors; a process each that copies torch takes long to start
USUAL_BATCH = 64  # points, where the user says nothing
LightningDataModule: Any = _checks.extra("lightning", "train").LightningDataModule


class Batch(TypedDict):
    """n points in k views: `views` k tensors (n, ...), `mask` bool (k, n), `label` (n,), `index` (n,).

    `mask` is None when every point has every view; absent rows are zero. `label` is None for unlabelled data.
    """

    views: list[Tensor]
    mask: Tensor | None
    label: Tensor | None
    index: Tensor


class EpochLoader(DataLoader[Any]):
    """A loader that Lightning accepts as resumable: `train_dataloader` starts it at the right batch of the run.

    There is nothing to store in a checkpoint: the position follows from the numbers of epochs and batches done.
    """

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class ViewsData(LightningDataModule):
    """The base of all data modules. A subclass sets the attributes below and `datasets` in its constructor.

    A dataset maps a list of rows (from `EpochSampler` in training, plain numbers otherwise) to a `Batch`
    through `__getitems__`; so a batch is made at once, never point by point.

    Attributes:
        k: number of views.
        view_names: their names.
        view_shapes: the shape of one sample of each view.
        num_classes: number of classes, None for unlabelled data.
        class_names: names of the classes, None for unlabelled data.
        scaling: per view, what was subtracted from its features and what they were divided by, or None; empty if they
            are as the user gave them.
        view_kinds: per view, image, audio, text, vector, table or signal; None leaves it to the shapes.
        inputs: per view, how new data of it are read, in plain values; empty where they are arrays.
        shared_encoder: whether the views look alike, so that one encoder suits all.
        few_shot: whether an evaluation measures probes from a few labels per class too.
        notes: what was inferred from the files and should be known before training, a sentence each.
    """

    view_names: list[str]
    view_shapes: list[tuple[int, ...]]
    view_kinds: list[str] | None = None
    class_names: list[str] | None = None
    shared_encoder: ClassVar[bool] = False
    few_shot: ClassVar[bool] = False

    def __init__(self, *, batch_size: int | None, seed: int, num_workers: int):
        super().__init__()
        self._batch_size = None if batch_size is None else _checks.positive_int("batch_size", batch_size)
        self.seed = _checks.seed("seed", seed)
        if not isinstance(num_workers, int) or num_workers < 0:
            raise ValueError(f"num_workers must be a whole number of at least 0, got {num_workers!r}.")
        most = max(MOST_WORKERS, 2 * (os.cpu_count() or 1))
        if num_workers > most:
            raise ValueError(f"num_workers must be at most {most} processes on this machine, got {num_workers}.")
        self.num_workers = num_workers
        self.datasets: dict[Split, Dataset[Any]] = {}
        self.scaling: list[tuple[Tensor, Tensor] | None] = []
        self.inputs: list[dict[str, Any]] = []
        self.notes: list[str] = []

    @property
    def batch_size(self) -> int:
        """Points per step and process: those asked for, else 64, or all training rows where there are fewer."""
        if self._batch_size is not None:
            return self._batch_size
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        return max(1, min(USUAL_BATCH, self.num_rows("train") // processes))

    @property
    def k(self) -> int:
        return len(self.view_names)

    @property
    def num_classes(self) -> int | None:
        return None if self.class_names is None else len(self.class_names)

    def num_rows(self, split: Split) -> int:
        """How many rows a split has; 0 where the data has no such split."""
        _checks.one_of("split", split, SPLITS)
        return len(self.datasets[split]) if split in self.datasets else 0  # type: ignore[arg-type]

    def sampler(self) -> EpochSampler:
        """The order of training; a data module with another rule overrides this."""
        return EpochSampler(self.num_rows("train"), batch_size=self.batch_size, seed=self.seed)

    def train_dataloader(self) -> DataLoader[Any]:
        sampler = self.sampler()
        trainer = getattr(self, "trainer", None)
        if trainer is not None:
            # Worker processes read ahead as soon as the loader exists, before Lightning sets the epoch.
            epoch, batches = _position(trainer)
            sampler.set_epoch(epoch)
            sampler.resume(epoch=epoch, batches=batches)
        return self._loader(self.datasets["train"], sampler=sampler)

    def loader(self, split: Split, *, most: int | None = None) -> DataLoader[Any]:
        """All rows of a split in their order, as evaluation sees them; the last batch may be smaller.

        With `most`, where there are more, so many of them, evenly spread.
        """
        dataset: Any = self.evaluation_dataset(split)
        if most is not None and len(dataset) > most:
            dataset = Subset(dataset, (np.arange(most) * len(dataset) // most).tolist())
        return self._loader(dataset)

    def evaluation_dataset(self, split: Split) -> Dataset[Any]:
        return self.datasets[_checks.one_of("split", split, SPLITS)]  # type: ignore[index]

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader("val")

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader("test")

    def arrays(self, split: Split, *, most: int | None = None) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
        """A split at once, or `most` of its rows: k tensors (n, ...), mask (k, n) or None, labels (n,) or None."""
        if self.num_rows(split) == 0:
            raise ValueError(f"split must be one that has rows, got {split!r}, which has none: raise its fraction.")
        batches: list[Batch] = list(self.loader(split, most=most))
        views = [torch.cat(parts) for parts in zip(*(batch["views"] for batch in batches))]
        return views, _join([b["mask"] for b in batches], dim=1), _join([b["label"] for b in batches])

    def held_out_batches(self) -> tuple[Iterable[Batch], Iterable[Batch]] | None:
        """Batches of one view each: training rows of all views, and test rows of views that nothing was trained on.

        None where the data holds no views out, or none that one encoder for all could see.
        """
        return None

    def _loader(self, dataset: Dataset[Any], **options: Any) -> EpochLoader:
        return EpochLoader(
            dataset,
            batch_size=self.batch_size,
            num_workers=self.num_workers,
            collate_fn=as_it_is,
            # Its own generator: creating a loader must not move the global random state, or a resumed run
            # would draw other dropout masks than one that was never interrupted.
            generator=torch.Generator().manual_seed(self.seed),
            pin_memory=torch.cuda.is_available(),
            **options,
        )


def class_codes(labels: np.ndarray) -> tuple[list[str], Tensor]:
    """The names of the classes and, for every row, the number of its own; refuses what is not a set of classes."""
    if np.issubdtype(labels.dtype, np.floating) and np.isnan(labels).any():
        row = int(np.flatnonzero(np.isnan(labels))[0])
        raise ValueError(f"labels must have a class for every row, got NaN in row {row}.")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"labels must have at least 2 classes, got only {names[0]!s}: leave it out.")
    if len(names) > max(2, len(labels) // 2):
        raise ValueError(
            f"labels must have classes of several rows each, got {len(names)} different values in {len(labels)} rows: "
            "leave it out, or group them into classes."
        )
    return [str(name) for name in names], torch.from_numpy(codes.astype(np.int64))


def _position(trainer: Any) -> tuple[int, int]:
    """The epoch a run is in and how many of its batches are done: not (0, 0) when it resumes.

    A checkpoint is written after a batch or epoch was processed and before Lightning counts it as completed.
    """
    epochs = trainer.fit_loop.epoch_progress.current
    batches = trainer.fit_loop.epoch_loop.batch_progress
    if epochs.ready == epochs.processed or batches.is_last_batch:
        return epochs.ready, 0
    return epochs.ready - 1, batches.current.processed


def as_it_is(batch: Any) -> Any:
    """The collate function of a dataset that makes whole batches."""
    return batch


def _join(parts: Sequence[Tensor | None], dim: int = 0) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present, dim=dim) if present else None
