"""Fast scores of the embeddings of k views for `m3g reproduce views`."""

from __future__ import annotations

import itertools
import statistics
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from m3g.costs import Cost
from m3g.data.entries import drop_entries, seeded_draws
from m3g.evaluation import Embedded, Probe, clustering, knn_accuracy, polymatching_accuracy, transfer_probe
from m3g.evaluation.embedded import Readout, off_diagonal_mean
from m3g.evaluation.retrieval import recall_at_1, recall_from_others

# Scores by name; `absent` contains dicts of scores by fraction of missing entries, `subsets` scores by number of views.
Scores: TypeAlias = "dict[str, float | Scores]"
SHOTS = (1, 5, 10)  # labels per class
DRAWS = 5  # random choices of the labelled rows
MISSING = (0.0, 0.3, 0.5, 0.7)  # fractions of missing test entries
MAX_SUBSETS = 6  # maximum number of subsets of each number of views
MATCHED_VIEWS, MATCHED_POINTS = 4, 128  # maximum numbers for polymatching


def validation(train: Embedded, held_out: Embedded, *, by_class: bool, readout: Readout = "mean") -> dict[str, float]:
    """Return the score that selects a setting: the mean of linear probe, moved probe and retrieval.

    Retrieval is from one view to another; with a cost as `readout`, from its query of all other views.
    """
    if isinstance(readout, Cost):
        scores = {"recall_rest": recall_from_rest(held_out, by_class=by_class, readout=readout)}
    else:
        scores = {"recall": recall(held_out, by_class=by_class)}
    if train.labels is not None and held_out.labels is not None:
        scores["linear_mean"] = Probe(train.mean, train.labels, kind="ridge").accuracy(held_out.mean, held_out.labels)
        scores["moved"] = moved_probe(train, held_out)
    return {**scores, "validation": statistics.fmean(scores.values())}


def measure(train: Embedded, test: Embedded, *, by_class: bool, seed: int, readout: Readout = "mean") -> Scores:
    """Return all scores on test rows; scores that require a common space are omitted for features without one.

    `readout` determines the query of all other views in retrieval, see `m3g.evaluation.embedded.read_out`.
    """
    scores: Scores = {}
    shared = test.embeddings is not None
    if shared:
        scores["recall"] = recall(test, by_class=by_class)
        scores["recall_rest"] = recall_from_rest(test, by_class=by_class, readout=readout)
        scores["polymatching"] = polymatching(test, seed=seed)
    if train.labels is not None:
        joins = ["mean", "concat"] if shared else ["concat"]
        for name in joins:
            scores |= _labelled(name, train.read_out(name), train.labels, test.read_out(name), test.labels, seed=seed)
        clusters = clustering(train.read_out(joins[0]), train.labels, seed=seed)
        scores |= {"nmi": clusters.nmi, "ari": clusters.ari, "cluster_accuracy": clusters.accuracy}
        if shared:
            scores["moved"] = moved_probe(train, test)
    scores["absent"] = {
        f"{fraction:g}": with_missing(train, test, fraction, by_class=by_class, seed=seed, readout=readout)
        for fraction in MISSING
    }
    if shared and train.labels is not None:
        scores["subsets"] = by_number_of_views(train, test, seed=seed)
    return scores


def _labelled(name: str, train: Tensor, labels: Tensor, test: Tensor, truth: Tensor | None, *, seed: int) -> Scores:
    assert truth is not None
    scores: Scores = {
        f"linear_{name}": Probe(train, labels, kind="ridge").accuracy(test, truth),
        f"knn_{name}": knn_accuracy(_nonzero(train), labels, _nonzero(test), truth, neighbours=min(5, len(labels))),
    }
    return scores | {f"few_{s}_{name}": few_labels(train, labels, test, truth, shots=s, seed=seed) for s in SHOTS}


def _nonzero(x: Tensor) -> Tensor:
    """Return the rows slightly shifted, so that a zero row also has a direction."""
    return x + 1e-12


def few_labels(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, *, shots: int, seed: int) -> float:
    """Return the accuracy of the nearest class mean (cosine) with `shots` labels per class, averaged over draws."""
    classes, codes = torch.unique(labels, return_inverse=True)
    units, queries = normalize(train, dim=-1), normalize(test, dim=-1)
    scores = []
    for draw in range(DRAWS):
        order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(1000 * seed + draw))
        drawn = one_hot(codes[order], len(classes))
        first = (drawn.cumsum(0) * drawn).sum(1) <= shots  # the first rows of each class in this order
        rows = order[first]
        centres = normalize(one_hot(codes[rows], len(classes)).to(units).T @ units[rows], dim=-1)
        scores.append(float((classes[(queries @ centres.T).argmax(1)] == truth).double().mean()))
    return statistics.fmean(scores)


def moved_probe(train: Embedded, test: Embedded) -> float:
    """Return the accuracy of a probe trained on one view and tested on another, averaged over ordered pairs."""
    return off_diagonal_mean(transfer_probe(train, test, kind="ridge"))


def recall(points: Embedded, *, by_class: bool) -> float:
    """Return R@1 from one view in another, averaged over ordered pairs."""
    present, views, labels = points.present, points.views, points.labels if by_class else None
    recalls = [
        recall_at_1(views[l], views[m], queried=present[l], searched=present[m], labels=labels)
        for l, m in itertools.permutations(range(len(views)), 2)
    ]
    return statistics.fmean(score for score in recalls if score is not None)


def recall_from_rest(
    points: Embedded, *, by_class: bool, shown: Tensor | None = None, readout: Readout = "mean"
) -> float:
    """Return R@1 in a view from the query of all others, by default their mean, averaged over views.

    `shown`, bool (k, n), selects the entries of the queries, by default all. An object without a query is a miss.
    """
    present, recalls = points.present, []
    shown = present if shown is None else shown
    for m in range(len(present)):
        score = recall_from_others(points, m, shown=shown, readout=readout, labels=points.labels if by_class else None)
        others = shown.sum(0) - shown[m].long() > 0
        recalls.append((score or 0.0) * float((others & present[m]).sum() / present[m].sum()))
    return statistics.fmean(recalls)


def polymatching(points: Embedded, *, seed: int) -> float:
    """Return the fraction of objects that the best polymatching matches correctly in all of its views.

    At most the first four views and 128 objects are used, in batches of 16.
    """
    present = points.present[:MATCHED_VIEWS].all(0)
    views = torch.stack(list(points.views[:MATCHED_VIEWS]))[:, present][:, :MATCHED_POINTS]
    return polymatching_accuracy(views, seed=seed) if views.shape[1] >= 2 else float("nan")


def with_missing(
    train: Embedded, test: Embedded, fraction: float, *, by_class: bool, seed: int, readout: Readout = "mean"
) -> Scores:
    """Return scores of probe and retrieval with a fraction of the test entries missing.

    No entries are removed from the training rows of the probe.
    """
    present = test.present
    remaining = drop_entries(present, seeded_draws(*present.shape, seed=seed), fraction=fraction, exact=True)
    join = "concat" if train.embeddings is None else "mean"
    scores: Scores = {}
    if train.labels is not None and test.labels is not None:
        probe = Probe(train.read_out(join), train.labels, kind="ridge")
        scores["linear"] = probe.accuracy(test.read_out(join, shown=remaining), test.labels)
    if test.embeddings is not None:
        scores["recall_rest"] = recall_from_rest(test, by_class=by_class, shown=remaining, readout=readout)
    return scores


def by_number_of_views(train: Embedded, test: Embedded, *, seed: int) -> Scores:
    """Train a probe on the mean of all views and return, for every s, its accuracy on the mean of s views.

    The accuracy is averaged over at most six subsets of s views.
    """
    assert train.labels is not None
    probe, k = Probe(train.mean, train.labels, kind="ridge"), len(test.views)
    accuracy: Scores = {}
    random = torch.Generator().manual_seed(seed)
    for size in range(1, k + 1):
        subsets = list(itertools.combinations(range(k), size))
        chosen = [subsets[i] for i in torch.randperm(len(subsets), generator=random)[:MAX_SUBSETS].tolist()]
        scores = []
        for part in map(test.only, chosen):
            assert part.labels is not None
            scores.append(probe.accuracy(part.mean, part.labels))
        accuracy[str(size)] = statistics.fmean(scores)
    return accuracy
