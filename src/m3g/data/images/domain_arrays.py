"""Images of the same classes in several domains, in memory: like `Domains` (domains.py), for small images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from m3g import _checks
from m3g.data.batch import Batch, TensorRows
from m3g.data.images.aligned import AlignedDomains
from m3g.data.images.reading import as_signed, read_archive, version_of
from m3g.data.sampling import Draw, aligned_points, generator
from m3g.data.splits import SPLITS, Split, split_rows


class AlignedRows(Dataset[Batch]):
    """Dataset of tuples of images, one per domain. Training images are shifted by a random number of pixels.

    Args:
        images: (n, c, h, w), the images of all domains.
        labels: (n,), their classes.
        points: for each object of the split, the image indices of its tuple; in training, a `Draw` contains them.
        shift: maximum shift in pixels.
        seed: seed of the shifts.
    """

    def __init__(self, images: Tensor, labels: Tensor, points: Sequence[tuple[int, ...]], *, shift: int, seed: int):
        self.images, self.labels, self.points = images, labels, points
        self.shift, self.seed = shift, seed

    def __len__(self) -> int:
        return len(self.points)

    def __getitems__(self, rows: Sequence[int | Draw]) -> Batch:
        points = [row.row if isinstance(row, Draw) else self.points[row] for row in rows]
        first = rows[0]
        index = torch.tensor(points).T  # (k, n)
        images = self.images[index.reshape(-1)]
        if isinstance(first, Draw) and self.shift > 0:
            images = shifted(images, self.shift, generator(self.seed, 1 + first.epoch, first.position))
        views = images.unflatten(0, tuple(index.shape)).unbind(0)
        return {"views": list(views), "mask": None, "label": self.labels[index[0]], "index": index[0]}


def shifted(images: Tensor, max_shift: int, random: np.random.Generator) -> Tensor:
    """Shift each image (n, c, h, w) by up to `max_shift` pixels along both axes, repeating its border."""
    n, _, height, width = images.shape
    padded = pad(images, (max_shift,) * 4, mode="replicate")
    down, right = (torch.from_numpy(random.integers(0, 2 * max_shift + 1, n)) for _ in range(2))
    rows = down[:, None] + torch.arange(height)
    columns = right[:, None] + torch.arange(width)
    image = torch.arange(n)[:, None, None]
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class DomainArrays(AlignedDomains):
    """Small images of the same classes in several domains, from one `.npz` file; the domains are the views.

    For each domain, the file contains an array `<domain>` of uint8 images (n, height, width) or (n, height, width,
    channels), and an array `<domain>_label` (n,) with the class of each image. Objects, batches and probes are those
    of `Domains`, and splits those of its layout without list files. Images stay in memory, and the only augmentation is
    a random shift.

    Args:
        path: the file.
        domains: the domains to use; by default all in the file.
        held_out: domains used only for testing.
        batch_size: classes per step and process.
        points_per_epoch: objects per epoch, rounded down to whole batches; by default, the average number of training
            images per domain that is not held out.
        val, test: fractions of the images held out, stratified by class.
        shift: maximum shift of a training image in pixels.
        split_seed: seed of the split.
        seed: seed of batches and shifts.
        num_workers: processes that prepare batches; 0 is fastest for images in memory.
    """

    shared_encoder: ClassVar[bool] = True
    labels: Tensor

    def __init__(
        self,
        path: str | Path,
        *,
        domains: Sequence[str] | None = None,
        held_out: str | Sequence[str] = (),
        batch_size: int = 16,
        points_per_epoch: int | None = None,
        val: float = 0.1,
        test: float = 0.2,
        shift: int = 2,
        split_seed: int = 0,
        seed: int = 0,
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        stored = read_domains(Path(path))
        names = list(stored) if domains is None else domains
        self._choose_views(names, held_out, list(stored))
        shift = _checks.whole("shift", shift)
        used = [name for name in stored if name in names or name in self.held_out]
        self.images = torch.cat([stored[name][0] for name in used])
        classes, codes = np.unique(np.concatenate([stored[name][1] for name in used]), return_inverse=True)
        self.class_names = [str(name) for name in classes]
        self.labels = torch.from_numpy(codes.astype(np.int64))
        self.members = {}
        start = 0
        for name in used:
            labels = codes[start : start + len(stored[name][1])]
            rows = split_rows(len(labels), val=val, test=test, seed=split_seed, labels=labels)
            self.members.update({(name, split): start + rows[split] for split in SPLITS})
            start += len(labels)
        self.view_shapes = [tuple(self.images.shape[1:])] * self.k
        self._set_points_per_epoch(points_per_epoch)
        for split in SPLITS:
            points = aligned_points(self._by_class(split))
            self.datasets[split] = AlignedRows(self.images, self.labels, points, shift=shift, seed=seed)

    def domain_rows(self, domain: str, split: Split) -> TensorRows:
        take = torch.from_numpy(self._images_of(domain, split))
        return TensorRows([self.images[take]], None, self.labels[take], take)


def read_domains(path: Path) -> dict[str, tuple[Tensor, np.ndarray]]:
    """Return, for each domain, its images as floats in [-1, 1] (n, c, h, w) and their classes; cached for reuse."""
    return _read(path, version_of(path))


@lru_cache(maxsize=2)
def _read(path: Path, version: tuple[int, int]) -> dict[str, tuple[Tensor, np.ndarray]]:
    arrays, domains = read_archive(path), {}
    for name, array in arrays.items():
        if name.endswith("_label"):
            continue
        labels = arrays.get(f"{name}_label")
        if array.dtype != np.uint8 or array.ndim not in (3, 4):
            raise ValueError(
                f"{name!r} must be uint8 images (n, h, w) or (n, h, w, c), got {array.dtype} {array.shape}."
            )
        if labels is None or labels.shape != array.shape[:1]:
            raise ValueError(
                f"{name}_label must have {len(array)} entries, one per image of {name!r}, "
                f"got {'none' if labels is None else f'shape {labels.shape}'}."
            )
        domains[name] = (as_signed(array if array.ndim == 4 else array[..., None]), labels)
    if len({tuple(images.shape[1:]) for images, _ in domains.values()}) != 1:
        raise ValueError("path must contain images of one shape in all domains, got several shapes or no images.")
    return domains
