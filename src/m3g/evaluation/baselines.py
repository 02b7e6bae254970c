"""Reference values of an evaluation: chance levels, and the scores of the raw features."""

from __future__ import annotations

import torch
from scipy.special import hyp0f1
from torch import Tensor

from m3g.evaluation.embedded import Embedded, off_diagonal_mean, read_out
from m3g.evaluation.few_shot import few_shot_probe
from m3g.evaluation.geometry import effective_rank
from m3g.evaluation.linear_probe import linear_probe
from m3g.evaluation.matching import matching_batch
from m3g.evaluation.probes import knn_accuracy, quick_probe
from m3g.evaluation.retrieval import LEVELS, retrieval

PROBES = ("linear_mean", "linear_query", "linear_concat", "knn_mean", "paper_probe")
SINGLE_VIEW_PROBES = ("linear_views", "linear_transfer")


def guess(train_labels: Tensor, test_labels: Tensor) -> float:
    """Return the accuracy of always predicting the most frequent class of the training rows.

    Example:
        >>> guess(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 0, 1]))
        0.25
    """
    return float((test_labels == train_labels.mode().values).double().mean())


def chance(train: Embedded, test: Embedded, *, matching_size: int | None = None) -> dict[str, float]:
    """Return the chance levels of the scores of `evaluate` by name; `few_shot` is that of all few-shot probes.

    The chance level is that of the most frequent class for probes, of a random order for retrieval and matching, and of
    random directions for the geometry. For the balanced accuracy of few-shot probes, it is 1 divided by the number of
    classes. `matching_size` is the batch size of the polymatching.
    """
    scores: dict[str, float] = {}
    if train.labels is not None and test.labels is not None:
        scores = dict.fromkeys(PROBES, guess(train.labels, test.labels))
        rows = [slice(None)] if test.mask is None else list(test.mask)
        by_view = [guess(train.labels, test.labels[present]) for present in rows]
        scores |= dict.fromkeys(SINGLE_VIEW_PROBES, sum(by_view) / len(by_view))
        scores["few_shot"] = 1 / len(torch.unique(train.labels))
    if test.embeddings is not None:
        k, n, d = test.embeddings.shape
        sizes = torch.full((k,), n) if test.mask is None else test.mask.sum(1)
        for level in LEVELS:
            scores[f"recall_at_{level}"] = float((level / sizes.double()).clamp(max=1).mean())
        scores["recall_from_others"] = scores["recall_at_1"]
        scores["median_rank"] = float((sizes.double() + 1).mean() / 2)
        complete = n if test.mask is None else int(test.mask.all(0).sum())
        if complete > 1:
            scores["polymatching"] = float(matching_batch(k, complete, matching_size)) ** (1 - k)
        scores["alignment"] = 2.0
        scores["uniformity"] = float(-4 + torch.tensor(hyp0f1(d / 2, 4.0)).log())  # E exp(4 cosine) is 0F1(d / 2, 4)
        random = torch.randn(1, n, d, generator=torch.Generator().manual_seed(0)).expand(2, n, d)
        scores["effective_rank"] = effective_rank(random)
    return scores


def chance_of(name: str, scores: dict[str, float]) -> float:
    """Return the chance level of a metric from the result of `chance`."""
    return scores["few_shot" if name.startswith("few_shot_") else name]


def raw(train: Embedded, test: Embedded, names: list[str]) -> dict[str, float]:
    """Return the scores `names` of the raw features, which are the `features` of `train` and `test`.

    Probes use the concatenation of all views, or one view at a time. Few-shot probes, and scores that compare views,
    require views of equal size. Scores that are not computed for raw features are omitted.
    """
    assert train.features is not None
    assert test.features is not None
    scores: dict[str, float] = {}
    one_shape = len({part[0].numel() for part in test.features}) == 1
    if train.labels is not None and test.labels is not None:
        inputs, test_inputs = (read_out(part.features or (), part.mask, readout="concat") for part in (train, test))
        rows = (inputs, train.labels, test_inputs, test.labels)
        scores["linear_concat"] = scores["linear_mean"] = quick_probe(*rows)
        scores["knn_mean"] = knn_accuracy(*rows, neighbours=min(5, len(train.labels)))
        if "paper_probe" in names:
            scores["paper_probe"] = linear_probe(*rows).accuracy
        if "linear_views" in names:
            by_view = [_view_accuracy(train, test, l) for l in range(len(train.features))]
            scores["linear_views"] = sum(by_view) / len(by_view)
        for name in names if one_shape else []:
            if name.startswith("few_shot_"):
                shots = int(name.removeprefix("few_shot_"))
                flat = [[part.flatten(1) for part in split.features or []] for split in (train, test)]
                scores[name] = few_shot_probe(
                    flat[0], train.labels, flat[1], test.labels, shots=shots
                ).balanced_accuracy
    if one_shape:
        views = torch.stack([part.flatten(1) for part in test.features])
        ranked = retrieval(views, mask=test.mask)
        for level in LEVELS:
            scores[f"recall_at_{level}"] = off_diagonal_mean(ranked.recall[level])
        scores["median_rank"] = off_diagonal_mean(ranked.median_rank)
    return {name: scores[name] for name in names if name in scores}


def _view_accuracy(train: Embedded, test: Embedded, l: int) -> float:
    """Return the accuracy of a probe on the raw features of view l."""
    arguments: list[Tensor] = []
    for split in (train, test):
        assert split.features is not None
        assert split.labels is not None
        rows = slice(None) if split.mask is None else split.mask[l]
        arguments += [split.features[l][rows].flatten(1), split.labels[rows]]
    return quick_probe(*arguments)
