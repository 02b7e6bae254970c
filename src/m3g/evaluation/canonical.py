"""Linear maps of k views into one space in which they correlate most: linear CCA of k views (MCCA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m3g import _checks


def canonical(train: Sequence[Tensor], *, size: int, ridge: float = 0.1) -> list[Tensor]:
    """Directions (d_l, size) of k centred views, by maximal sum of correlations (MCCA).

    The first eigenvectors of C w = v D w, where C holds the covariances of all views, and D those within each view
    plus `ridge` times their mean variance.

    Example:
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> y = x * torch.tensor([1.0, 2.0, 3.0])
        >>> a, b = canonical([x, y], size=2, ridge=1e-3)
        >>> float(torch.corrcoef(torch.stack([(x @ a)[:, 0], (y @ b)[:, 0]]))[0, 1]) > 0.99
        True
    """
    eigh = _checks.extra("scipy.linalg", "train").eigh
    joined = torch.cat(list(train), dim=1).double()
    every = (joined.T @ joined / len(joined)).numpy()
    within, sizes = np.zeros_like(every), [view.shape[1] for view in train]
    for end, width in zip(np.cumsum(sizes), sizes):
        own = slice(end - width, end)
        spread = max(float(np.trace(every[own, own])) / width, 1e-12)
        within[own, own] = every[own, own] + ridge * spread * np.eye(width)
    most = min(size, len(every))
    _, vectors = eigh(every, within, subset_by_index=(len(every) - most, len(every) - 1))
    found = torch.from_numpy(np.ascontiguousarray(vectors[:, ::-1])).to(train[0].dtype)
    return list(found.split(sizes))


class CanonicalViews:
    """The views of a training set, mapped into the space in which they correlate most, and others by the same maps.

    The last step of deep CCA: its loss (`mcca`) is the same after any invertible linear map of a view, so the
    embeddings of two views that agree perfectly can still have a cosine of 0. It also serves losses that align views
    only up to signs (`gram`, `symile`).

    Args:
        views: k tensors (n, d_l) of training rows.
        mask: bool (k, n), true where a row has a view; the maps are found on the rows that have all.
        size: features of the common space, None for the fewest of a view.
        ridge: in units of the mean variance of a view's features.

    Example:
        >>> random = torch.Generator().manual_seed(0)
        >>> x = torch.randn(200, 4, generator=random)
        >>> views = [x, x @ torch.randn(4, 4, generator=random)]
        >>> a, b = CanonicalViews(views, ridge=1e-6)(views)
        >>> bool(torch.cosine_similarity(a, b).min() > 0.99)
        True
    """

    def __init__(
        self, views: Sequence[Tensor], mask: Tensor | None = None, *, size: int | None = None, ridge: float = 0.1
    ) -> None:
        complete = torch.ones(len(views[0]), dtype=torch.bool) if mask is None else mask.all(0)
        if int(complete.sum()) < 2:
            raise ValueError(f"views must have at least 2 rows with all views, got {int(complete.sum())}.")
        self.means = [view[complete].mean(0) for view in views]
        centred = [view[complete] - mean for view, mean in zip(views, self.means)]
        self.directions = canonical(centred, size=size or min(view.shape[1] for view in views), ridge=ridge)

    def __call__(self, views: Sequence[Tensor]) -> list[Tensor]:
        """k tensors (n, size) of k views (n, d_l)."""
        return [(view - mean) @ w for view, mean, w in zip(views, self.means, self.directions)]
