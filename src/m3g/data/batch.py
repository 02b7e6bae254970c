"""Batches of k views, and datasets of tensors. Unlike `m3g.data.base`, this module does not import Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from m3g.data.sampling import Draw


@final
class Batch(TypedDict):
    """Batch of n objects.

    Attributes:
        views: k tensors (n, ...); missing rows are zero.
        mask: bool (k, n), true where an entry is present; None only if no entry is missing.
        label: classes (n,); None for unlabelled data.
        index: (n,), the row number of each object in the data. An object composed of one image per domain has the row
            number of its image in the first domain.
    """

    views: list[Tensor]
    mask: Tensor | None
    label: Tensor | None
    index: Tensor


class TensorRows(Dataset[Batch]):
    """Dataset of k tensors (n, ...) in memory, with the mask (k, n), the labels (n,) and the row numbers (n,)."""

    def __init__(self, views: Sequence[Tensor], mask: Tensor | None, label: Tensor | None, index: Tensor):
        self.views, self.mask, self.label, self.index = list(views), mask, label, index

    def __len__(self) -> int:
        return len(self.index)

    def __getitems__(self, rows: Sequence[int | Draw]) -> Batch:
        take = torch.tensor([row.row if isinstance(row, Draw) else row for row in rows])
        return {
            "views": self.read(take, rows[0]),
            "mask": None if self.mask is None else self.mask[:, take],
            "label": None if self.label is None else self.label[take],
            "index": self.index[take],
        }

    def read(self, take: Tensor, first: int | Draw) -> list[Tensor]:
        """Return the k views of the rows `take` (n,); subclasses override this.

        `first` is the first element of the list passed to `__getitems__`: a `Draw` in training, a number otherwise.
        """
        return [view[take] for view in self.views]
