"""Embeddings of objects in k views, and their reduction to one vector per object (`read_out`)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.costs import Cost

# Reduction of the views of an object to one vector, see `read_out`.
Readout = str | Cost | Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Embedded:
    """Embeddings and features of n objects in k views.

    Attributes:
        embeddings: (k, n, d) in one space; None if the views have no common space.
        features: k tensors, either encoder outputs before the projectors (n, d_l), or inputs (n, ...); the sizes may
            differ between views.
        labels: (n,), None for unlabelled data.
        mask: bool (k, n), True where an object has a view; None if all are present.
        index: (n,), row numbers in the user's files, if known.
        split: the name of the split of each object, if known.
        view_names: the names of the k views.
        class_names: the names of the labels 0, 1, ...
    """

    embeddings: Tensor | None = None
    features: Sequence[Tensor] | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None
    index: Tensor | None = None
    split: Sequence[str] | None = None
    view_names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None

    @property
    def views(self) -> Sequence[Tensor] | Tensor:
        """k tensors (n, d_l): the embeddings, or the features if there are none."""
        views = self.features if self.embeddings is None else self.embeddings
        assert views is not None
        return views

    @property
    def present(self) -> Tensor:
        """The mask, all True if there is none."""
        if self.mask is not None:
            return self.mask
        return torch.ones(len(self.views), len(self.views[0]), dtype=torch.bool, device=self.views[0].device)

    @property
    def mean(self) -> Tensor:
        """(n, d), the mean of the unit vectors of the present views of each object."""
        return self.read_out("mean")

    def read_out(self, readout: Readout = "mean", *, shown: Tensor | None = None, view: int | None = None) -> Tensor:
        """Return one vector per object, computed by the function `read_out` from the entries that `shown` marks.

        `shown` is bool (k, n); by default, all present entries are used.
        """
        return read_out(self.views, self.mask if shown is None else shown, readout=readout, view=view)

    def label_name(self, i: int) -> str:
        """Return the class name of object i."""
        assert self.labels is not None
        code = int(self.labels[i])
        return str(code) if self.class_names is None else self.class_names[code]

    def only(self, views: Sequence[int]) -> Embedded:
        """Return only the given views, and only the objects that have at least one of them.

        Example:
            >>> points = Embedded(torch.zeros(3, 2, 4), mask=torch.tensor([[1, 0], [1, 0], [0, 1]]).bool())
            >>> points.only([0, 1]).embeddings.shape
            torch.Size([2, 1, 4])
        """
        chosen = list(views)
        part = replace(
            self,
            embeddings=None if self.embeddings is None else self.embeddings[chosen],
            features=None if self.features is None else [self.features[l] for l in chosen],
            mask=None if self.mask is None else self.mask[chosen],
            view_names=None if self.view_names is None else [self.view_names[l] for l in chosen],
        )
        return part if part.mask is None else part.take(part.mask.any(0))

    def take(self, rows: Tensor) -> Embedded:
        """Return some of the objects, by a bool mask (n,) or by their positions from 0 to n - 1."""
        rows = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
        return replace(
            self,
            embeddings=None if self.embeddings is None else self.embeddings[:, rows],
            features=None if self.features is None else [part[rows] for part in self.features],
            labels=None if self.labels is None else self.labels[rows],
            mask=None if self.mask is None else self.mask[:, rows],
            index=None if self.index is None else self.index[rows],
            split=None if self.split is None else [self.split[i] for i in rows.tolist()],
        )

    @classmethod
    def join(cls, parts: Sequence[Embedded]) -> Embedded:
        """Concatenate the objects of several parts; a field is concatenated if the first part has it."""
        first = parts[0]
        features = None if first.features is None else list(zip(*(part.features or () for part in parts)))

        def joined(name: str, dim: int) -> Tensor | None:
            return None if getattr(first, name) is None else torch.cat([getattr(part, name) for part in parts], dim=dim)

        return replace(
            first,
            embeddings=joined("embeddings", 1),
            features=None if features is None else [torch.cat(view) for view in features],
            labels=joined("labels", 0),
            mask=joined("mask", 1),
            index=joined("index", 0),
            split=None if first.split is None else [name for part in parts for name in part.split or ()],
        )


def read_out(
    views: Sequence[Tensor] | Tensor, mask: Tensor | None = None, *, readout: Readout = "mean", view: int | None = None
) -> Tensor:
    """Return one vector per object from the views that the mask marks as present.

    Probes of whole objects, retrieval from the other views, search and the evaluation of missing views use this
    function. The result has shape (n, d), or (n, Σ d_l) for `"concat"`; a cost or a function may return another number
    of features.

    Args:
        views: k tensors (n, d_l); of one size, except for `"concat"`.
        mask: bool (k, n), True where an object has a view; None if all are present. Missing entries may be NaN.
        readout: `"mean"`: the mean of the unit vectors, NaN if there are none. `"concat"`: the unscaled views, with
            zeros for missing ones. A cost that is linear in each view: its query (`Cost.query`). A function: its value
            at the unit vectors (k, n, d), zero for missing views, and the mask (k, n).
        view: the view with which the result is compared; it is excluded. With None, all views are used; a cost then
            returns its query for a hypothetical view k + 1.

    Example:
        >>> views = torch.tensor([[[2.0, 0.0]], [[0.0, 3.0]]])
        >>> read_out(views), read_out(views, view=1), read_out(views, readout="concat")
        (tensor([[0.5000, 0.5000]]), tensor([[1., 0.]]), tensor([[2., 0., 0., 3.]]))
    """
    if view is not None:
        if mask is None:
            mask = torch.ones(len(views), len(views[0]), dtype=torch.bool, device=views[0].device)
        mask = mask.index_fill(0, torch.tensor(view, device=mask.device), False)
    if readout == "concat":
        parts = [part.flatten(1) for part in views]
        if mask is not None:
            parts = [torch.where(mask[l].unsqueeze(-1), part, 0.0) for l, part in enumerate(parts)]
        return torch.cat(parts, dim=1)
    points = views if isinstance(views, Tensor) else torch.stack(list(views))
    if mask is not None:
        points = torch.where(mask.unsqueeze(-1), points, 0.0)
    units = normalize(points, dim=-1)
    if isinstance(readout, str):
        _checks.one_of("readout", readout, ("mean", "concat"))
        return units.mean(0) if mask is None else units.sum(0) / mask.sum(0).unsqueeze(-1)
    present = torch.ones(units.shape[:2], dtype=torch.bool, device=units.device) if mask is None else mask
    if not isinstance(readout, Cost):
        return readout(units, present)
    if view is None:
        view, pad = len(units), (0, 0, 0, 1)
        units, present = torch.nn.functional.pad(units, (0, 0, *pad)), torch.nn.functional.pad(present, pad)
    return readout.query(units, view, mask=present)


def off_diagonal_mean(matrix: Tensor) -> float:
    """Return the mean of a matrix (k, k) without its diagonal."""
    off_diagonal = ~torch.eye(len(matrix), dtype=torch.bool)
    return statistics.fmean(matrix[off_diagonal].tolist())
