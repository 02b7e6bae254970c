"""Linear CCA of k views (MCCA): linear maps into a common space with maximal correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from m3g import _checks

MIN_RELATIVE_VARIANCE = 1e-10  # a variance below this fraction of the largest counts as zero


class Basis(NamedTuple):
    """Principal directions (d, r) of a centred view and their variances (r,)."""

    directions: Tensor
    variances: Tensor


class Canonical(NamedTuple):
    """Result of `canonical`: directions (d_l, size) of each view, and the eigenvalues (size,) of the components."""

    directions: list[Tensor]
    eigenvalues: Tensor


def principal_basis(view: Tensor, *, rank: int | None = None, rows: int | None = None) -> Basis:
    """Return the first principal directions of a centred view (n, d), from the smaller of its two Gram matrices.

    Args:
        view: (n, d), zero in missing rows.
        rank: maximum number of directions; None means no maximum. Directions without variance are omitted, except
            that a constant view keeps one.
        rows: the number of rows that are present; None counts all.
    """
    view = view.double()
    wide = view.shape[1] > view.shape[0]
    values, vectors = torch.linalg.eigh((view @ view.T if wide else view.T @ view) / (rows or len(view)))
    values, vectors = values.flip(0)[:rank], vectors.flip(1)[:, :rank]
    keep = values > max(MIN_RELATIVE_VARIANCE * float(values[0]), 1e-300)
    if not bool(keep.any()):  # a constant view
        return Basis(torch.eye(view.shape[1], 1, dtype=view.dtype), values.new_zeros(1))
    values, vectors = values[keep], vectors[:, keep]
    if wide:
        vectors = view.T @ vectors / ((rows or len(view)) * values).sqrt()
    return Basis(vectors, values)


def canonical(
    train: Sequence[Tensor],
    *,
    size: int,
    ridge: float = 0.1,
    mask: Tensor | None = None,
    bases: Sequence[Basis] | None = None,
    within: bool = True,
) -> Canonical:
    """Return directions (d_l, size) of k centred views with maximal sum of correlations (MCCA).

    The directions are the eigenvectors w of C w = v D w with the largest eigenvalues v. C contains the covariances of
    all pairs of views. D contains the covariances within each view, with `ridge` times the mean variance of the view
    added to the diagonal.

    Args:
        train: k tensors (n, d_l), zero in rows without the view.
        size: maximum number of components.
        ridge: ridge of D, in units of the mean variance of a view along its principal directions.
        mask: bool (k, n); the covariance of two views is over the rows that have both.
        bases: the principal directions to which each view is reduced; None keeps all that have variance.
        within: whether C includes the covariances within a view. Without them and without a ridge, the eigenvalue
            divided by k - 1 is the mean correlation over pairs of views if all mapped views have the same variance.
            With them, a large ridge favours directions of large variance, even if they are uncorrelated between views.

    Example:
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> y = x * torch.tensor([1.0, 2.0, 3.0])
        >>> (a, b), _ = canonical([x, y], size=2, ridge=1e-3)
        >>> float(torch.corrcoef(torch.stack([(x @ a)[:, 0], (y @ b)[:, 0]]))[0, 1]) > 0.99
        True
    """
    eigh = _checks.extra("scipy.linalg", "train").eigh
    k, n = len(train), len(train[0])
    present = torch.ones(k, n, dtype=torch.float64) if mask is None else mask.double()
    common = (present @ present.T).clamp(min=1)
    bases = bases or [principal_basis(view, rows=int(common[l, l])) for l, view in enumerate(train)]
    whitening = [
        basis.directions / (basis.variances + ridge * max(float(basis.variances.mean()), 1e-12)).sqrt()
        for basis in bases
    ]
    sizes = [part.shape[1] for part in whitening]
    points = torch.cat([view.double() @ part for view, part in zip(train, whitening)], dim=1)
    view_index = torch.repeat_interleave(torch.arange(k), torch.tensor(sizes))
    matrix = points.T @ points / common[view_index][:, view_index]
    if not within:
        matrix[view_index[:, None] == view_index] = 0.0
    num_components = min(size, len(matrix))
    values, vectors = eigh(matrix.numpy(), subset_by_index=(len(matrix) - num_components, len(matrix) - 1))
    blocks = torch.from_numpy(vectors).flip(1).split(sizes)
    directions = [(part @ block).to(train[0].dtype) for part, block in zip(whitening, blocks)]
    return Canonical(directions, torch.from_numpy(values).flip(0).to(train[0].dtype))


class CanonicalViews:
    """Maps of k views into a common space in which their correlation on the training rows is maximal.

    They are the last step of deep CCA: its loss (`mcca`) is invariant to invertible linear maps of a view, so the
    embeddings of two perfectly correlated views can have a cosine of 0. The maps also align the embeddings of losses
    that determine embeddings only up to signs (`gram`, `symile`).

    Args:
        views: k tensors (n, d_l) of training rows.
        mask: bool (k, n), True where a row has a view; the maps are fitted on complete rows.
        size: number of features of the common space; None means that of the view with the fewest features.
        ridge: ridge of the covariances within a view, in units of the mean variance of the view along its principal
            directions.

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
        self.directions = canonical(centred, size=size or min(view.shape[1] for view in views), ridge=ridge).directions

    def __call__(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Map k views (n, d_l) to k tensors (n, size)."""
        return [(view - mean) @ w for view, mean, w in zip(views, self.means, self.directions)]
