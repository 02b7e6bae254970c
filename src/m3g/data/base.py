"""Base class of data modules: k views of the same objects, in splits and batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from m3g import _catalogue, _checks
from m3g.data.batch import Batch
from m3g.data.sampling import EpochSampler
from m3g.data.splits import SPLITS, Split

if TYPE_CHECKING:
    from lightning import LightningDataModule, Trainer
    from lightning.pytorch.loops.progress import _ProcessedTracker

    from m3g.data.tables.reader import Recipe
else:
    LightningDataModule = _checks.extra("lightning", "train").LightningDataModule

MAX_WORKERS = 64  # maximum of num_workers, or twice the number of CPUs if that is larger
DEFAULT_BATCH_SIZE = 64
T = TypeVar("T")


class EpochLoader(DataLoader[Batch]):
    """Loader with the state methods that Lightning requires of a resumable loader.

    The state is empty: `train_dataloader` computes the position from the numbers of finished epochs and batches.
    """

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        pass


class ViewsData(LightningDataModule):
    """Base class of data modules. A subclass sets `datasets` and the attributes below, unless their defaults apply.

    `datasets` contains a dataset for each split. The method `__getitems__` of a dataset maps a list of rows to a
    `Batch`, so that a batch is read as a whole. In training, the list contains the draws of `EpochSampler`; otherwise,
    it contains row numbers.

    Attributes:
        k: number of views, the length of `view_names`.
        view_names: names of the views.
        view_shapes: the shape of one sample of each view.
        num_classes: number of `class_names`, None for unlabelled data.
        class_names: names of the classes, None for unlabelled data.
        scaling: per view, the offset and divisor of its features, or None; may be empty if no view is scaled.
        view_kinds: per view, image, audio, text, tfidf, vector, table or signal; None if the kinds follow from the
            shapes.
        inputs: per view, the preprocessing of new data as plain values; empty except for tables of objects.
        input_tensors: per view, the tensors that belong to `inputs`, by name; empty if `inputs` is.
        shared_encoder: whether all views share one encoder by default, because they are of one kind.
        few_shot: whether an evaluation includes probes with a few labels per class by default.
        notes: sentences about the files, such as properties that were inferred; reported before training.
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
        max_workers = max(MAX_WORKERS, 2 * (os.cpu_count() or 1))
        self.num_workers = _checks.whole("num_workers", num_workers)
        if self.num_workers > max_workers:
            raise ValueError(f"num_workers must be at most {max_workers} processes on this machine, got {num_workers}.")
        self.datasets: dict[Split, Dataset[Batch]] = {}
        self.scaling: list[tuple[Tensor, Tensor] | None] = []
        self.inputs: list[Recipe] = []
        self.input_tensors: list[dict[str, Tensor]] = []
        self.notes: list[str] = []

    @property
    def batch_size(self) -> int:
        """Rows per step and process: by default 64, or all training rows of a process if there are fewer."""
        if self._batch_size is not None:
            return self._batch_size
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        return max(1, min(DEFAULT_BATCH_SIZE, self.num_rows("train") // processes))

    @property
    def k(self) -> int:
        return len(self.view_names)

    @property
    def num_classes(self) -> int | None:
        return None if self.class_names is None else len(self.class_names)

    def num_rows(self, split: Split) -> int:
        """Return the number of rows of a split; 0 if the data has no such split."""
        _checks.one_of("split", split, SPLITS)
        return len(self.datasets[split]) if split in self.datasets else 0  # type: ignore[arg-type]

    def sampler(self) -> EpochSampler:
        """Return the training sampler; data modules with another sampling rule override this."""
        return EpochSampler(self.num_rows("train"), batch_size=self.batch_size, seed=self.seed)

    def train_dataloader(self) -> DataLoader[Batch]:
        sampler = self.sampler()
        trainer = getattr(self, "trainer", None)
        if trainer is not None:
            # Lightning starts the worker processes, which prefetch batches, before it sets the epoch.
            epoch, batches = _position(trainer)
            sampler.set_epoch(epoch)
            sampler.resume(epoch=epoch, batches=batches)
        return self.batches(self.datasets["train"], sampler=sampler)

    def loader(self, split: Split, *, most: int | None = None) -> DataLoader[Batch]:
        """Return an evaluation loader over all rows of a split, in order; the last batch may be smaller.

        With `most`, it covers at most that many rows, evenly spaced.
        """
        dataset, n = self.evaluation_dataset(split), self.num_rows(split)
        if most is not None and n > most:
            dataset = Subset(dataset, (np.arange(most) * n // most).tolist())
        return self.batches(dataset)

    def evaluation_dataset(self, split: Split) -> Dataset[Batch]:
        """Return the dataset of a split, as it is used in evaluation."""
        return self.datasets[_checks.one_of("split", split, SPLITS)]  # type: ignore[index]

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.loader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        return self.loader("test")

    def arrays(self, split: Split, *, most: int | None = None) -> tuple[list[Tensor], Tensor | None, Tensor | None]:
        """Read a split, or at most `most` rows of it: k tensors (n, ...), mask (k, n) or None, labels (n,) or None."""
        if self.num_rows(split) == 0:
            raise ValueError(f"split must have at least one row, got none in {split!r}: increase its fraction.")
        batches: list[Batch] = list(self.loader(split, most=most))
        views = [torch.cat(parts) for parts in zip(*(batch["views"] for batch in batches))]
        return views, _join([b["mask"] for b in batches], dim=1), _join([b["label"] for b in batches])

    def held_out_batches(self) -> tuple[Iterable[Batch], Iterable[Batch]] | None:
        """Return single-view batches: training rows of all views, and test rows of held-out views.

        None if the data has no held-out views.
        """
        return None

    def batches(
        self, dataset: Dataset[Batch], *, sampler: EpochSampler | None = None, batch_size: int | None = None
    ) -> EpochLoader:
        """Return a loader of the batches of a dataset; without a sampler, in the order of the dataset."""
        return EpochLoader(
            dataset,
            batch_size=batch_size or self.batch_size,
            num_workers=self.num_workers,
            collate_fn=_identity,
            # A separate generator, because iterating over a loader must not change the global random state. Otherwise,
            # a resumed run would draw other dropout masks than an uninterrupted one.
            generator=torch.Generator().manual_seed(self.seed),
            pin_memory=torch.cuda.is_available(),
            sampler=sampler,
        )


def available() -> list[str]:
    """Return the names of the data modules.

    Example:
        >>> "arrays" in available()
        True
    """
    return list(_catalogue.DATA)


def find(name: str) -> type[ViewsData]:
    """Return the data module of the given name.

    Example:
        >>> find("arrays").__name__
        'Arrays'
    """
    kind: type[ViewsData] = _catalogue.find("data", name, _catalogue.DATA).load()
    return kind


def class_codes(labels: np.ndarray) -> tuple[list[str], Tensor]:
    """Return the names of the classes, and the class index of every row (n,); raise if the labels are not classes."""
    if np.issubdtype(labels.dtype, np.floating) and np.isnan(labels).any():
        row = int(np.flatnonzero(np.isnan(labels))[0])
        raise ValueError(f"labels must have a class for every row, got NaN in row {row}.")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) == 0:
        raise ValueError("labels must have at least one row, got none.")
    if len(names) < 2:
        raise ValueError(f"labels must have at least 2 classes, got only {names[0]!s}: omit labels.")
    if len(names) > max(2, len(labels) // 2):
        raise ValueError(
            f"labels must be classes of several rows each, got {len(names)} different values in {len(labels)} rows: "
            "omit labels, or group the values into classes."
        )
    return [str(name) for name in names], torch.from_numpy(codes.astype(np.int64))


def _position(trainer: Trainer) -> tuple[int, int]:
    """Return the current epoch and the number of its finished batches, from which a resumed run continues.

    A checkpoint is written after a batch or epoch has been processed, but before Lightning counts it as completed.
    """
    epochs = cast("_ProcessedTracker", trainer.fit_loop.epoch_progress.current)
    batches = trainer.fit_loop.epoch_loop.batch_progress
    if epochs.ready == epochs.processed or batches.is_last_batch:
        return epochs.ready, 0
    return epochs.ready - 1, cast("_ProcessedTracker", batches.current).processed


def _identity(batch: T) -> T:
    """Collate function of a dataset that returns whole batches."""
    return batch


def _join(parts: Sequence[Tensor | None], dim: int = 0) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present, dim=dim) if present else None
