"""Linear CCA of k views with settings chosen on held-out rows: a baseline, and an initialisation of encoders."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g.evaluation.canonical import MIN_RELATIVE_VARIANCE, Basis, canonical, principal_basis
from m3g.evaluation.retrieval import truth_ranks

RIDGES = (0.01, 0.1, 1.0, 10.0)
TOTAL_RANK = 1200  # maximum number of principal directions of all views together
MAX_ROWS = 10_000  # maximum number of rows used for the fit
MAX_PRODUCTS = 1e11  # maximum number of multiplications for one Gram matrix, unless 1000 rows require more
FEW_ROWS = 500  # number of rows up to which every row is held out once
COLUMNS = 4096  # columns of a view that are centred and scaled at a time
CONSTANT = 1e-6  # maximum ratio of standard deviation to mean at which a feature counts as constant


class LinearCCA:
    """Ridge-regularised linear CCA of k views, fitted on training rows.

    Two settings are chosen by the mean reciprocal rank of held-out training rows: whether features are standardised or
    keep their original scale, and the ridge, one of `RIDGES`. If there are too few rows to hold some out, features are
    standardised, and the ridge is 1. Components are weighted by the square root of their mean
    correlation over pairs of views, as in the posterior mean of probabilistic CCA.

    Args:
        views: k tensors (n, ...) of training rows.
        mask: bool (k, n), True where a row has a view; None if all are present.
        size: the number of components.
        divisors: per view, the numbers by which its features have been divided; None if they have their original scale.

    Attributes:
        means: k tensors (d_l,).
        maps: k tensors (d_l, size); the mean squared length of a mapped training row is `size`.
        standardized, ridge: the chosen settings.
        reciprocal_rank: the mean reciprocal rank of held-out rows with this choice; NaN if there are none.

    Example:
        >>> random = torch.Generator().manual_seed(0)
        >>> x = torch.randn(200, 4, generator=random)
        >>> views = [x, x @ torch.randn(4, 6, generator=random)]
        >>> a, b = LinearCCA(views, size=4)(views)
        >>> bool(torch.cosine_similarity(a, b).min() > 0.9)
        True

    Reference: F. Bach, M. Jordan, *A Probabilistic Interpretation of Canonical Correlation Analysis*, 2005.
    """

    def __init__(
        self,
        views: Sequence[Tensor],
        mask: Tensor | None = None,
        *,
        size: int,
        divisors: Sequence[Tensor | None] | None = None,
    ) -> None:
        flat, present = _subsampled([view.flatten(1) for view in views], mask)
        if int((present.sum(0) > 1).sum()) < 2:
            raise ValueError("views must have at least 2 rows with two views or more, got fewer.")
        self.size = size
        centred = [CentredView.of(view, rows) for view, rows in zip(flat, present)]
        self.means = [view.mean for view in centred]
        all_divisors = [None] * len(flat) if divisors is None else divisors
        scales = {
            True: [view.standard_deviations() for view in centred],
            False: [
                view.original_scale(torch.ones_like(view.mean) if part is None else 1 / part.flatten())
                for view, part in zip(centred, all_divisors)
            ],
        }
        scores = _held_out_scores(centred, present, scales, size)
        best = max(scores, key=scores.__getitem__)
        self.standardized, self.ridge, self.reciprocal_rank = *best, scores[best]
        chosen = scales[self.standardized]
        spans = [view.span(scale) for view, scale in zip(centred, chosen)]
        rows = [span.coordinates for span in spans]
        maps = _maps(rows, present, _bases(rows, present), size=size, ridge=self.ridge)
        lengths = [(view @ part)[mask].square().sum(1) for view, part, mask in zip(rows, maps, present)]
        factor = math.sqrt(size / max(float(torch.cat(lengths).mean()), 1e-12))
        self.maps = [
            factor * view.in_features(span, scale, part) / scale.unsqueeze(1)
            for view, span, scale, part in zip(centred, spans, chosen, maps)
        ]

    def __call__(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Map k views (n, ...) to k tensors (n, size)."""
        return [(view.flatten(1) - mean) @ part for view, mean, part in zip(views, self.means, self.maps)]


def _subsampled(views: list[Tensor], mask: Tensor | None) -> tuple[list[Tensor], Tensor]:
    """Return the views and their mask, reduced to evenly spaced rows if there are too many for a fast fit."""
    n, d = len(views[0]), max(view.shape[1] for view in views)
    max_rows = min(MAX_ROWS, max(1000, int(MAX_PRODUCTS / d**2)))
    present = torch.ones(len(views), n, dtype=torch.bool) if mask is None else mask
    if n <= max_rows:
        return views, present
    rows = torch.arange(max_rows) * n // max_rows
    return [view[rows] for view in views], present[:, rows]


class Span(NamedTuple):
    """Rows of a scaled view in an orthonormal basis of their span.

    Attributes:
        coordinates: (n, n), or the rows (n, d) themselves if d <= n.
        weights: (n, n); the basis is the transposed view times these weights. None if the coordinates are the rows.
    """

    coordinates: Tensor
    weights: Tensor | None = None


class CentredView(NamedTuple):
    """A view (n, d), its mean (d,), and the rows that have it, bool (n, 1).

    If there are more columns than rows, the view is centred and scaled a few columns at a time, so that a wide view
    requires little memory beyond its own.
    """

    values: Tensor
    mean: Tensor
    rows: Tensor

    @classmethod
    def of(cls, view: Tensor, rows: Tensor) -> CentredView:
        view = view.contiguous()  # so that results do not depend on the strides of the input
        return cls(view, (view if bool(rows.all()) else view[rows]).mean(0), rows.unsqueeze(1))

    def scaled(self, scale: Tensor, columns: slice = slice(None)) -> Tensor:
        """Return columns of the centred view, divided by their scale; missing rows are zero."""
        return torch.where(self.rows, self.values[:, columns] - self.mean[columns], 0.0) / scale[columns]

    def parts(self) -> list[slice]:
        return [slice(start, start + COLUMNS) for start in range(0, self.values.shape[1], COLUMNS)]

    def standard_deviations(self) -> Tensor:
        """Return the standard deviation of each feature; 1 for constant features."""
        ones = torch.ones_like(self.mean)
        squares = torch.cat([self.scaled(ones, columns).square().sum(0) for columns in self.parts()])
        deviations = (squares / self.rows.sum()).sqrt()
        return torch.where(deviations > CONSTANT * self.mean.abs(), deviations, 1.0)

    def original_scale(self, scale: Tensor) -> Tensor:
        """Return the multiple of `scale` for which the mean square of the scaled view is 1."""
        square = sum(self.scaled(scale, columns).square().sum() for columns in self.parts())
        return scale * (square / (self.rows.sum() * self.values.shape[1])).sqrt().clamp(min=1e-12)

    def span(self, scale: Tensor) -> Span:
        """Return the coordinates of the scaled rows in an orthonormal basis of their span.

        Inner products of rows, and thus the ranks of held-out rows, do not change.
        """
        n, d = self.values.shape
        if d <= n:
            return Span(self.scaled(scale))
        gram = torch.zeros(n, n, dtype=torch.float64)
        for columns in self.parts():
            part = self.scaled(scale, columns).double()
            gram += part @ part.T
        values, vectors = torch.linalg.eigh(gram)
        lengths = values.clamp(min=0).sqrt()
        inverse = torch.where(values > MIN_RELATIVE_VARIANCE * values[-1], 1 / lengths, 0.0)
        return Span((vectors * lengths).to(self.values.dtype), vectors * inverse)

    def in_features(self, span: Span, scale: Tensor, directions: Tensor) -> Tensor:
        """Convert directions in the coordinates of the span to directions (d, size) of the scaled features."""
        if span.weights is None:
            return directions
        weights = span.weights @ directions.double()
        parts = [self.scaled(scale, columns).double().T @ weights for columns in self.parts()]
        return torch.cat([part.to(directions.dtype) for part in parts])


def _bases(views: Sequence[Tensor], mask: Tensor) -> list[Basis]:
    rank = max(1, TOTAL_RANK // len(views))
    return [principal_basis(view, rank=rank, rows=int(present.sum())) for view, present in zip(views, mask)]


def _maps(views: Sequence[Tensor], mask: Tensor, bases: list[Basis], *, size: int, ridge: float) -> list[Tensor]:
    """Return directions (d_l, size) with weighted components, padded with zero columns to `size`."""
    directions, eigenvalues = canonical(views, size=size, ridge=ridge, mask=mask, bases=bases, within=False)
    weights = (eigenvalues / (len(views) - 1)).clamp(min=0).sqrt()
    pad = (0, size - len(weights))
    return [torch.nn.functional.pad(part * weights, pad) for part in directions]


class Choice(NamedTuple):
    """Settings that are chosen on held-out rows."""

    standardized: bool
    ridge: float


def _held_out_scores(
    views: list[CentredView], mask: Tensor, scales: dict[bool, list[Tensor]], size: int
) -> dict[Choice, float]:
    """Return the mean reciprocal rank of held-out rows for every choice."""
    n = mask.shape[1]
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    folds = order.chunk(5)[: 5 if n <= FEW_ROWS else 1]
    ranks: dict[Choice, list[float]] = {}
    for standardized, scale in scales.items():
        divided = [view.span(part).coordinates for view, part in zip(views, scale)]
        for held_out in folds:
            fitted = torch.ones(n, dtype=torch.bool)
            fitted[held_out] = False
            train, train_mask = [view[fitted] for view in divided], mask[:, fitted]
            if not bool(train_mask.any(1).all()):
                continue
            bases = _bases(train, train_mask)
            for ridge in RIDGES:
                maps = _maps(train, train_mask, bases, size=size, ridge=ridge)
                points = torch.stack([view[held_out] @ part for view, part in zip(divided, maps)])
                rank = mean_reciprocal_rank(points, mask[:, held_out])
                ranks.setdefault(Choice(standardized, ridge), []).append(rank)
    defined = {choice: [value for value in values if not math.isnan(value)] for choice, values in ranks.items()}
    scored = {choice: sum(values) / len(values) for choice, values in defined.items() if values}
    return scored or {Choice(True, 1.0): math.nan}  # default choice if there are too few rows to hold some out


def mean_reciprocal_rank(embeddings: Tensor, mask: Tensor | None = None) -> float:
    """Return the mean of 1 / rank of the true partner over objects and ordered pairs of views.

    It is smoother than R@1, so that settings can be chosen with few rows. The embeddings have shape (k, n, d). The
    result is NaN if no object has two views.

    Example:
        >>> mean_reciprocal_rank(torch.eye(3).expand(2, 3, 3))
        1.0
    """
    pairs = [float(inverse.mean()) for _, inverse in _inverse_ranks(embeddings, mask)]
    return sum(pairs) / len(pairs) if pairs else math.nan


def rank_contributions(embeddings: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return (n,): the contribution of each object to `mean_reciprocal_rank`, which is the sum of all contributions.

    Example:
        >>> rank_contributions(torch.eye(4).expand(2, 4, 4))
        tensor([0.2500, 0.2500, 0.2500, 0.2500], dtype=torch.float64)
    """
    pairs = list(_inverse_ranks(embeddings, mask))
    total = torch.zeros(embeddings.shape[1], dtype=torch.float64, device=embeddings.device)
    for both, inverse in pairs:
        total[both] += inverse / (len(inverse) * len(pairs))
    return total


def _inverse_ranks(embeddings: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, per ordered pair of views, the objects that have both, bool (n,), and 1 / rank of their true partner."""
    k, n = embeddings.shape[:2]
    present = torch.ones(k, n, dtype=torch.bool, device=embeddings.device) if mask is None else mask
    units = normalize(embeddings, dim=-1)
    for l in range(k):
        for m in range(k):
            both = present[l] & present[m]
            if l != m and bool(both.any()):
                gallery_index = present[m].cumsum(0) - 1
                ranks = truth_ranks(units[l][both], units[m][present[m]], gallery_index[both])
                yield both, 1 / ranks.double()
