"""Evaluation of embeddings by all scores, with reference values."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from torch import Tensor

from m3g import _checks
from m3g.costs import Cost
from m3g.evaluation import baselines
from m3g.evaluation.embedded import Embedded, Readout, off_diagonal_mean, read_out
from m3g.evaluation.few_shot import SHOTS, few_shot_probe, most_shots
from m3g.evaluation.geometry import alignment, effective_rank, uniformity
from m3g.evaluation.linear_probe import linear_probe
from m3g.evaluation.matching import matched_objects
from m3g.evaluation.missing import Missing, without_views
from m3g.evaluation.probes import Probe, knn_rows, transfer_probe
from m3g.evaluation.retrieval import LEVELS, recall_from_others, retrieval

METRICS = {
    "linear_mean": "linear probe on the mean of the views' embeddings, accuracy",
    "linear_views": "linear probe on one view's embedding, accuracy, mean over views",
    "linear_transfer": "linear probe trained on one view and tested on another, accuracy, mean over pairs",
    "linear_concat": "linear probe on the concatenated features of all views, accuracy",
    "linear_held_out": "linear probe trained on features of the seen domains, tested on the held-out domains, accuracy",
    "paper_probe": "as linear_mean, with the paper's protocol (SGD, learning rate sweep)",
    **{
        f"few_shot_{s}": f"probe on the views' features from {s} labels per class, balanced accuracy, mean of 5 draws"
        for s in SHOTS
    },
    "knn_mean": "5 nearest neighbours on the mean of the views' embeddings, accuracy",
    "linear_query": "linear probe on the cost's combination of all views, accuracy; for costs that contain product",
    "recall_from_others": "R@1: true partner ranked first by a query computed from all other views, mean over views",
    "recall_at_1": "R@1: true partner in another view ranked first, mean over pairs of views",
    "recall_at_5": "true partner among the first 5",
    "recall_at_10": "true partner among the first 10",
    "median_rank": "rank of the true partner, median over points, mean over pairs (1 is best)",
    "polymatching": "fraction of objects that the best polymatching of a batch matches correctly in all views",
    "alignment": "squared distance between two views of an object (0 is best, 2 is chance)",
    "uniformity": "spread on the sphere (-4 is spread out, 0 is collapse)",
    "effective_rank": "effective number of dimensions of the embedding (1 is collapse)",
}


@dataclass
class Report:
    """Result of an evaluation.

    Attributes:
        numbers: scores by the names of `METRICS`.
        matrices: matrices (k, k) between views: `recall_at_1`, `transfer`, …
        chance, raw, linear_cca: the same scores at chance level, of the raw features, and of linear CCA; the last two
            contain only some of the scores.
        missing: scores with missing views, see `m3g.evaluation.missing`.
        rows: for some of the scores, the contribution of each test row (n,), for row-by-row comparisons of two runs.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    matrices: dict[str, Tensor] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    raw: dict[str, float] = field(default_factory=dict)
    linear_cca: dict[str, float] = field(default_factory=dict)
    missing: Missing = field(default_factory=Missing)
    rows: dict[str, Tensor] = field(default_factory=dict)


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
    raw: tuple[Embedded, Embedded] | None = None,
    linear_cca: tuple[Embedded, Embedded] | None = None,
    missing: bool = False,
    readout: Readout = "mean",
) -> Report:
    """Return the scores that the data allow: probes require labels, and the other scores require embeddings.

    Args:
        train, test: probes are trained on `train` and tested on `test`; all other scores use `test` only.
        paper_probe: add `paper_probe`, see `linear_probe`.
        few_shot: add few-shot probes with 10, 50, 100 and 1000 labels per class, each only if every class has at least
            twice as many training rows.
        transfer: add probes trained on one view and tested on each view (`linear_views` and `linear_transfer`).
        polymatching: add the score `polymatching`, with batches of `matching_batch` objects and epsilon
            `matching_epsilon` (see `polymatching_accuracy`); omitted if fewer than two objects have all views.
        raw: the same train and test rows with the inputs as features, for reference.
        linear_cca: the same rows with the embeddings of `LinearCCA`, for reference.
        missing: add scores with missing views.
        readout: reduction of the views of an object to one vector, see `read_out`. A cost is used only for
            `recall_from_others`, the scores with missing views, and the additional probe `linear_query`.

    Example:
        >>> import torch
        >>> labels = torch.arange(60) % 3
        >>> views = torch.eye(3)[labels].expand(2, 60, 3) + 0.1 * torch.randn(2, 60, 3)
        >>> points = Embedded(embeddings=views, labels=labels)
        >>> evaluate(points, points, polymatching=False).numbers["linear_mean"]
        1.0
    """
    report = Report()
    if train.labels is not None and test.labels is not None:
        _add_probes(report, train, test, paper_probe=paper_probe, transfer=transfer, readout=readout)
        if few_shot and train.features is not None and test.features is not None:
            for shots in [shots for shots in SHOTS if shots <= most_shots(train.labels)]:
                few = few_shot_probe(train.features, train.labels, test.features, test.labels, shots=shots)
                report.numbers[f"few_shot_{shots}"] = few.balanced_accuracy
    if test.embeddings is not None:
        ranked = retrieval(test.embeddings, mask=test.mask)
        for level in LEVELS:
            report.matrices[f"recall_at_{level}"] = ranked.recall[level]
            report.numbers[f"recall_at_{level}"] = off_diagonal_mean(ranked.recall[level])
            report.rows[f"recall_at_{level}"] = ranked.contributions[level]
        by_view = [recall_from_others(test, m, readout=readout) for m in range(len(test.embeddings))]
        from_others = [value for value in by_view if value is not None]
        if from_others:
            report.numbers["recall_from_others"] = statistics.fmean(from_others)
        report.matrices["median_rank"] = ranked.median_rank
        report.numbers["median_rank"] = off_diagonal_mean(ranked.median_rank)
        if polymatching and test.present.all(0).sum() > 1:
            matched = matched_objects(
                test.embeddings, mask=test.mask, batch_size=matching_batch, epsilon=matching_epsilon
            )
            report.rows["polymatching"], report.numbers["polymatching"] = matched, float(matched.nanmean())
        for measure in (alignment, uniformity, effective_rank):
            report.numbers[measure.__name__] = measure(test.embeddings, mask=test.mask)
    if not report.numbers:
        raise ValueError("train and test must have labels, embeddings or both, got neither.")
    report.numbers = {name: report.numbers[name] for name in METRICS if name in report.numbers}
    chance = baselines.chance(train, test, matching_size=matching_batch)
    report.chance = {name: baselines.chance_of(name, chance) for name in report.numbers}
    if raw is not None:
        report.raw = baselines.raw(*raw, list(report.numbers))
    if linear_cca is not None:
        linear = evaluate(
            *linear_cca,
            paper_probe=paper_probe,
            transfer=transfer,
            polymatching=polymatching,
            matching_batch=matching_batch,
            matching_epsilon=matching_epsilon,
        ).numbers
        report.linear_cca = {name: linear[name] for name in report.numbers if name in linear}
    if missing and test.embeddings is not None:
        report.missing = without_views(train, test, raw=raw, readout=readout)
    return report


def _add_probes(
    report: Report, train: Embedded, test: Embedded, *, paper_probe: bool, transfer: bool, readout: Readout
) -> None:
    """Add the scores of all probes to the report."""
    numbers, labels, test_labels = report.numbers, train.labels, test.labels
    assert labels is not None
    assert test_labels is not None
    if train.embeddings is not None and test.embeddings is not None:
        _checks.finite_tensor("embeddings", train.embeddings)
        probe_readout: Readout = "mean" if isinstance(readout, Cost) else readout
        means = (train.read_out(probe_readout), labels, test.read_out(probe_readout), test_labels)
        report.rows["linear_mean"] = Probe(*means[:2]).correct(*means[2:])
        report.rows["knn_mean"] = knn_rows(*means, neighbours=min(5, len(labels)))
        numbers |= {name: float(report.rows[name].mean()) for name in ("linear_mean", "knn_mean")}
        if isinstance(readout, Cost):
            queries = Probe(train.read_out(readout), labels).correct(test.read_out(readout), test_labels)
            report.rows["linear_query"], numbers["linear_query"] = queries, float(queries.mean())
        if paper_probe:
            numbers["paper_probe"] = linear_probe(*means).accuracy
        if transfer:
            matrix = transfer_probe(train, test)
            report.matrices["transfer"] = matrix
            numbers["linear_views"] = float(matrix.diagonal().mean())
            numbers["linear_transfer"] = off_diagonal_mean(matrix)
    if train.features is not None and test.features is not None:
        features, test_features = (read_out(part.features or (), part.mask, readout="concat") for part in (train, test))
        report.rows["linear_concat"] = Probe(features, labels).correct(test_features, test_labels)
        numbers["linear_concat"] = float(report.rows["linear_concat"].mean())
