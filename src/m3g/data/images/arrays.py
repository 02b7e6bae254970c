"""Small images in memory: the k views of an image are k random augmentations, computed for a whole batch at once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from m3g import _checks
from m3g.data.base import ViewsData, class_codes
from m3g.data.batch import TensorRows
from m3g.data.images.reading import as_signed, read_archive, version_of
from m3g.data.sampling import Draw, generator
from m3g.data.splits import SPLITS, split_rows


def augmented(images: Tensor, random: np.random.Generator) -> Tensor:
    """Augment images (n, c, h, w) in [-1, 1]: random crop, flip, brightness, contrast, saturation and greyscale.

    A crop covers 20 to 100 % of the area. Random parameters are drawn for each image. All images are processed at once,
    which is many times faster for small images on a CPU than augmenting them one by one.

    Example:
        >>> augmented(torch.zeros(4, 3, 32, 32), np.random.default_rng(0)).shape
        torch.Size([4, 3, 32, 32])
    """
    n = len(images)
    side = np.sqrt(random.uniform(0.2, 1.0, n))
    stretch = np.exp(random.uniform(-0.2, 0.2, n))
    width, height = np.minimum(side * stretch, 1.0), np.minimum(side / stretch, 1.0)
    across = (1 - width) * random.uniform(-1, 1, n)
    down = (1 - height) * random.uniform(-1, 1, n)
    flip = random.choice([-1.0, 1.0], n)
    zero = np.zeros(n)
    matrix = np.stack([np.stack([flip * width, zero, across], 1), np.stack([zero, height, down], 1)], 1)
    grid = affine_grid(torch.from_numpy(matrix.astype(np.float32)), list(images.shape), align_corners=False)
    cropped = grid_sample(images, grid, align_corners=False, padding_mode="border")
    brightness, contrast, saturation = (
        torch.from_numpy(random.uniform(-0.4, 0.4, n).astype(np.float32)).view(n, 1, 1, 1) for _ in range(3)
    )
    has_colour = torch.from_numpy((random.random(n) > 0.2).astype(np.float32)).view(n, 1, 1, 1)
    grey = cropped.mean(1, keepdim=True)
    coloured = grey + (cropped - grey) * (1 + saturation) * has_colour
    return (coloured * (1 + contrast) + brightness).clamp(-1, 1)


class AugmentedRows(TensorRows):
    """Dataset of images with k views each: random augmentations in training, identical copies in evaluation."""

    def __init__(self, images: Tensor, labels: Tensor | None, index: Tensor, *, k: int, seed: int):
        super().__init__([images], None, labels, index)
        self.k, self.seed = k, seed

    def read(self, take: Tensor, first: int | Draw) -> list[Tensor]:
        (images,) = super().read(take, first)
        if not isinstance(first, Draw):
            return [images] * self.k
        views = augmented(images.repeat(self.k, 1, 1, 1), generator(self.seed, 1 + first.epoch, first.position))
        return list(views.unflatten(0, (self.k, len(take))).unbind(0))


class ImageArrays(ViewsData):
    """Small images from one `.npz` file, in memory; the views of an image are k random augmentations.

    The file contains `images` (n, height, width, channels), uint8, and optionally `label` (n,), the class of each
    image. For image files, larger images, and the paper's augmentations, use `ImageFolders`.

    Args:
        path: the file.
        k: number of views.
        batch_size: images per step and process.
        val, test: fractions of the images held out, stratified by class if there are labels.
        split_seed: seed of the split.
        seed: seed of the training order and the augmentations.
        num_workers: processes that prepare batches; 0 is fastest for images in memory.
    """

    shared_encoder: ClassVar[bool] = True

    def __init__(
        self,
        path: str | Path,
        *,
        k: int = 2,
        batch_size: int = 64,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        num_workers: int = 0,
    ):
        super().__init__(batch_size=batch_size, seed=seed, num_workers=num_workers)
        if _checks.positive_int("k", k) < 2:
            raise ValueError(f"k must be at least 2 views, got {k}.")
        images, labels = _read(Path(path), version_of(Path(path)))
        codes = None
        if labels is not None:
            self.class_names, codes = class_codes(labels)
        self.view_names = [f"augmentation {l}" for l in range(k)]
        self.view_shapes = [tuple(images.shape[1:])] * k
        classes = None if codes is None else codes.numpy()
        rows = split_rows(len(images), val=val, test=test, seed=split_seed, labels=classes)
        for split in SPLITS:
            take = torch.from_numpy(rows[split])
            labelled = None if codes is None else codes[take]
            self.datasets[split] = AugmentedRows(images[take], labelled, take, k=k, seed=seed)


@lru_cache(maxsize=1)
def _read(path: Path, version: tuple[int, int]) -> tuple[Tensor, np.ndarray | None]:
    """Read images as floats in [-1, 1] (n, c, h, w) and their classes; cached until another file or version is read."""
    arrays = read_archive(path)
    images, labels = arrays.get("images"), arrays.get("label")
    if images is None or images.dtype != np.uint8 or images.ndim != 4:
        got = ", ".join(arrays) if images is None else f"{images.dtype} {images.shape}"
        raise ValueError(f"path must contain 'images' of shape (n, h, w, c), uint8, got {got}.")
    if labels is not None and labels.shape != images.shape[:1]:
        raise ValueError(f"label must have {len(images)} entries, one per image, got shape {labels.shape}.")
    return as_signed(images), labels
