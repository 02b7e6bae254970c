"""UCI Multiple Features, the data set included in the package."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import resources

from m3g.data.base import ViewsData
from m3g.data.storage.numpy_files import Archive
from m3g.data.tables.arrays import Arrays


class MultipleFeatures(Arrays):
    """UCI Multiple Features: 2 000 handwritten digits in six views, part of the package.

    The views are Fourier coefficients (76 features), profile correlations (216), Karhunen–Loève coefficients (64),
    pixel averages (240), Zernike moments (47) and morphological features (6). Each of the ten classes has 200 rows.

    Args:
        views: which of `fourier`, `profile`, `karhunen`, `pixels`, `zernike`, `morphology`; by default all.
        batch_size, val, test, split_seed, seed, standardize, swapped, num_workers: as in `Arrays`.

    Example:
        >>> data = MultipleFeatures(views=["fourier", "pixels", "zernike"])
        >>> data.k, data.view_shapes, data.num_classes
        (3, [(76,), (240,), (47,)], 10)
        >>> batch = next(iter(data.train_dataloader()))
        >>> [tuple(view.shape) for view in batch["views"]]
        [(64, 76), (64, 240), (64, 47)]

    Reference: R. Duin, *Multiple Features*, UCI Machine Learning Repository, CC BY 4.0 :cite:`duin`.
    """

    NAMES = ("fourier", "profile", "karhunen", "pixels", "zernike", "morphology")

    def __init__(
        self,
        *,
        views: Sequence[str] | None = None,
        batch_size: int = 64,
        val: float = 0.1,
        test: float = 0.2,
        split_seed: int = 0,
        seed: int = 0,
        standardize: bool = True,
        swapped: float = 0.0,
        num_workers: int = 0,
    ):
        ViewsData.__init__(self, batch_size=batch_size, seed=seed, num_workers=num_workers)
        names = list(self.NAMES if views is None else views)
        if len(names) < 2 or not set(names) <= set(self.NAMES) or len(set(names)) < len(names):
            raise ValueError(f"views must be two or more of {', '.join(self.NAMES)}, each at most once, got {names}.")
        with (
            resources.as_file(resources.files("m3g.data") / "files" / "mfeat.npz") as file,
            Archive(file) as stored,
        ):
            arrays, labels = [stored[name] for name in names], stored["digit"]
        split = partial(self._split, labels=labels, val=val, test=test, seed=split_seed)
        self._prepare(arrays, names, None, split, standardize, swapped)
