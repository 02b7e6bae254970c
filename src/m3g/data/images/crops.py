"""Random crops and flips of images, on which the paper trains its linear probe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from m3g.data.batch import Batch
from m3g.data.images.augment import as_float, normalize
from m3g.data.images.folders import ImageData
from m3g.data.images.reading import load_crops
from m3g.data.sampling import Draw, EpochSampler


class RandomCrops(Dataset[Batch]):
    """Dataset of single-view batches: a random crop of each image (`load_crops`), flipped with probability 1/2.

    The crops depend only on the seed of the data module, the epoch and the position in the order of the epoch.

    Args:
        data: the data module that lists the files and their labels.
        files: indices of the images in `data.files`. The `index` of a batch contains positions in `files`.
    """

    def __init__(self, data: ImageData, files: Sequence[int]):
        if data.labels is None:
            raise ValueError("data must have labels for a probe, got images without classes.")
        self.data, self.files, self.labels = data, list(files), data.labels[torch.tensor(files)]

    def __len__(self) -> int:
        return len(self.files)

    def __getitems__(self, draws: Sequence[Draw]) -> Batch:
        rows = [int(draw.row) for draw in draws]  # type: ignore[arg-type]
        randoms = [np.random.default_rng([self.data.seed, 2, draw.epoch, draw.position]) for draw in draws]
        crops = [
            load_crops(self.data.files[self.files[row]], self.data.size, [random])[0]
            for row, random in zip(rows, randoms)
        ]
        flipped = [crop.flip(-1) if random.random() < 0.5 else crop for crop, random in zip(crops, randoms)]
        index = torch.tensor(rows)
        return {
            "views": [normalize(as_float(torch.stack(flipped)))],
            "mask": None,
            "label": self.labels[index],
            "index": index,
        }

    def loader(self, *, batch_size: int) -> tuple[DataLoader[Batch], EpochSampler]:
        """Return a loader of random batches, and its sampler, whose epoch the caller sets before each pass."""
        # One process evaluates, even if several have trained.
        sampler = EpochSampler(len(self), batch_size=batch_size, seed=self.data.seed, rank=0, world=1)
        return self.data.batches(self, sampler=sampler, batch_size=batch_size), sampler
