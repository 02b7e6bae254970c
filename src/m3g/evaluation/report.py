"""The one place that runs every evaluation: embeddings in, numbers and matrices out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import normalize

from m3g import _checks
from m3g.evaluation.few_shot import SHOTS, few_shot_probe, most_shots
from m3g.evaluation.geometry import alignment, effective_rank, uniformity
from m3g.evaluation.matching import polymatching_accuracy
from m3g.evaluation.probes import knn_accuracy, linear_probe, quick_probe, transfer_probe
from m3g.evaluation.retrieval import LEVELS, retrieval

METRICS = {
    "linear_mean": "linear probe on the mean of the views' embeddings, accuracy",
    "linear_views": "linear probe on one view's embedding, accuracy, mean over views",
    "linear_transfer": "linear probe trained on one view and tested on another, accuracy, mean over pairs",
    "linear_concat": "linear probe on all views' features side by side, accuracy",
    "linear_held_out": "linear probe on the features of all domains' images, tested on the held-out domains, accuracy",
    "paper_probe": "as linear_mean, with the paper's protocol (SGD, learning rate sweep)",
    **{
        f"few_shot_{s}": f"probe on the views' features from {s} labels per class, balanced accuracy, mean of 5 draws"
        for s in SHOTS
    },
    "knn_mean": "5 nearest neighbours on the mean of the views' embeddings, accuracy",
    "recall_at_1": "true partner in another view found first, mean over pairs of views",
    "recall_at_5": "true partner among the first 5",
    "recall_at_10": "true partner among the first 10",
    "median_rank": "rank of the true partner, median over points, mean over pairs (1 is best)",
    "polymatching": "points that the best polymatching of a batch matches rightly in all views",
    "alignment": "squared distance between two views of a point (0 is best, 2 is chance)",
    "uniformity": "spread on the sphere (-4 is spread out, 0 is collapse)",
    "effective_rank": "dimensions the embedding uses (1 is collapse)",
}


@dataclass
class Embedded:
    """n points as a network sees them: what `evaluate` works on.

    Attributes:
        embeddings: (k, n, d) after the projectors; None to judge `features` alone.
        features: k tensors (n, width) before them; the widths may differ.
        labels: (n,), None for unlabelled data.
        mask: bool (k, n), true where a point has a view; None if all have.
    """

    embeddings: Tensor | None = None
    features: Sequence[Tensor] | None = None
    labels: Tensor | None = None
    mask: Tensor | None = None


@dataclass
class Report:
    """Numbers by the names of `METRICS`, and matrices (k, k) between views: `recall_at_1`, `transfer`, …"""

    numbers: dict[str, float] = field(default_factory=dict)
    matrices: dict[str, Tensor] = field(default_factory=dict)


def mean_of_views(embeddings: Tensor, mask: Tensor | None = None) -> Tensor:
    """One vector per point, (n, d): the mean of its present views' unit vectors."""
    units = normalize(embeddings, dim=-1)
    if mask is None:
        return units.mean(0)
    weight = mask.to(units).unsqueeze(-1)
    return (units * weight).sum(0) / weight.sum(0)


def side_by_side(features: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """All views' features in one row per point, absent ones zero."""
    parts = [part.flatten(1) for part in features]
    if mask is not None:
        parts = [torch.where(mask[l].unsqueeze(-1), part, 0.0) for l, part in enumerate(parts)]
    return torch.cat(parts, dim=1)


def off_diagonal_mean(matrix: Tensor) -> float:
    away = ~torch.eye(len(matrix), dtype=torch.bool)
    return float(matrix[away].mean())


def evaluate(
    train: Embedded,
    test: Embedded,
    *,
    paper_probe: bool = False,
    few_shot: bool = False,
    transfer: bool = True,
    polymatching: bool = True,
    matching_batch: int | None = None,
    matching_epsilon: float = 0.02,
) -> Report:
    """Everything that the given parts allow: probes need labels, the rest needs embeddings.

    Probes are fitted on `train` and scored on `test`; everything else is measured on `test` alone. `few_shot` adds
    the paper's probes from 10, 50, 100 and 1000 labels per class, as far as there are twice as many training rows.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> views = torch.eye(3)[labels].expand(2, 60, 3) + 0.1 * torch.randn(2, 60, 3)
        >>> points = Embedded(embeddings=views, labels=labels)
        >>> evaluate(points, points, polymatching=False).numbers["linear_mean"]
        1.0
    """
    report = Report()
    if train.labels is not None and test.labels is not None:
        _probe(report, train, test, paper_probe=paper_probe, transfer=transfer)
        if few_shot and train.features is not None and test.features is not None:
            for shots in [shots for shots in SHOTS if shots <= most_shots(train.labels)]:
                found = few_shot_probe(train.features, train.labels, test.features, test.labels, shots=shots)
                report.numbers[f"few_shot_{shots}"] = found.balanced_accuracy
    if test.embeddings is not None:
        searched = retrieval(test.embeddings, mask=test.mask)
        for level in LEVELS:
            report.matrices[f"recall_at_{level}"] = searched.recall[level]
            report.numbers[f"recall_at_{level}"] = off_diagonal_mean(searched.recall[level])
        report.matrices["median_rank"] = searched.median_rank
        report.numbers["median_rank"] = off_diagonal_mean(searched.median_rank)
        if polymatching:
            report.numbers["polymatching"] = polymatching_accuracy(
                test.embeddings, mask=test.mask, batch_size=matching_batch, epsilon=matching_epsilon
            )
        for measure in (alignment, uniformity, effective_rank):
            report.numbers[measure.__name__] = measure(test.embeddings, mask=test.mask)
    if not report.numbers:
        raise ValueError("train and test must have labels, embeddings or both, got neither.")
    report.numbers = {name: report.numbers[name] for name in METRICS if name in report.numbers}
    return report


def _probe(report: Report, train: Embedded, test: Embedded, *, paper_probe: bool, transfer: bool) -> None:
    numbers, labels, test_labels = report.numbers, train.labels, test.labels
    assert labels is not None
    assert test_labels is not None
    if train.embeddings is not None and test.embeddings is not None:
        _checks.finite_tensor("embeddings", train.embeddings)
        means = (
            mean_of_views(train.embeddings, train.mask), labels,
            mean_of_views(test.embeddings, test.mask), test_labels,
        )  # fmt: skip
        numbers["linear_mean"] = quick_probe(*means)
        numbers["knn_mean"] = knn_accuracy(*means, neighbours=min(5, len(labels)))
        if paper_probe:
            numbers["paper_probe"] = linear_probe(*means).accuracy
        if transfer:
            matrix = transfer_probe(
                normalize(train.embeddings, dim=-1), labels, normalize(test.embeddings, dim=-1), test_labels,
                train_mask=train.mask, test_mask=test.mask,
            )  # fmt: skip
            report.matrices["transfer"] = matrix
            numbers["linear_views"] = float(matrix.diagonal().mean())
            numbers["linear_transfer"] = off_diagonal_mean(matrix)
    if train.features is not None and test.features is not None:
        numbers["linear_concat"] = quick_probe(
            side_by_side(train.features, train.mask), labels,
            side_by_side(test.features, test.mask), test_labels,
        )  # fmt: skip
