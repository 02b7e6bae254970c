"""What `m3g reproduce views` measures of k views' embeddings, each number in milliseconds."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from m3g.data.tables.swapped import absent_entries
from m3g.evaluation import RidgeProbe, clustering, knn_accuracy, polymatching_accuracy
from m3g.evaluation.embedded import mean_of_views, side_by_side
from m3g.evaluation.retrieval import truth_ranks

SHOTS = (1, 5, 10)
DRAWS = 5
ABSENT = (0.0, 0.3, 0.5, 0.7)
MOST_SUBSETS = 6
MATCHED_VIEWS, MATCHED_POINTS = 4, 128


@dataclass(frozen=True)
class Points:
    """n objects as a method sees them.

    Args:
        views: k tensors (n, d_l); in one space they are unit vectors of one size.
        labels: (n,) or None.
        mask: bool (k, n), true where an object has a view; None if all have.
    """

    views: Sequence[Tensor]
    labels: Tensor | None
    mask: Tensor | None = None

    @property
    def present(self) -> Tensor:
        return torch.ones(len(self.views), len(self.views[0]), dtype=torch.bool) if self.mask is None else self.mask


def validation(train: Points, held_out: Points, *, by_class: bool) -> dict[str, float]:
    """What a setting is chosen by: the mean of linear probe, moved probe and retrieval, as far as there are labels."""
    found = {"recall": recall(held_out, by_class=by_class)}
    if train.labels is not None and held_out.labels is not None:
        found["linear_mean"] = RidgeProbe(mean(train), train.labels).accuracy(mean(held_out), held_out.labels)
        found["moved"] = moved_probe(train, held_out)
    return {**found, "validation": statistics.fmean(found.values())}


def measure(train: Points, test: Points, *, shared: bool, by_class: bool, seed: int) -> dict[str, Any]:
    """Everything, on rows of the test; what needs one space for all views only where they `share` one."""
    found: dict[str, Any] = {}
    if shared:
        found["recall"] = recall(test, by_class=by_class)
        found["recall_rest"] = recall_from_rest(test, by_class=by_class)
        found["polymatching"] = polymatching(test, seed=seed)
    if train.labels is not None:
        for name, join in [("mean", mean)] * shared + [("concat", concatenation)]:
            found |= _labelled(name, join(train), train.labels, join(test), test.labels, seed=seed)
        scores = clustering(mean(train) if shared else concatenation(train), train.labels, seed=seed)
        found |= {"nmi": scores.nmi, "ari": scores.ari, "cluster_accuracy": scores.accuracy}
        if shared:
            found["moved"] = moved_probe(train, test)
    found["absent"] = {f"{share:g}": absent(train, test, share, shared, by_class, seed) for share in ABSENT}
    if shared and train.labels is not None:
        found["subsets"] = by_number_of_views(train, test, seed=seed)
    return found


def mean(points: Points) -> Tensor:
    """One vector per object: the mean of the unit vectors of the views it has."""
    return mean_of_views(torch.stack(list(points.views)), points.mask)


def concatenation(points: Points) -> Tensor:
    """All views side by side; an absent one is zero."""
    return side_by_side(points.views, points.mask)


def _labelled(
    name: str, train: Tensor, labels: Tensor, test: Tensor, truth: Tensor | None, *, seed: int
) -> dict[str, float]:
    assert truth is not None
    found = {
        f"linear_{name}": RidgeProbe(train, labels).accuracy(test, truth),
        f"knn_{name}": knn_accuracy(_nonzero(train), labels, _nonzero(test), truth, neighbours=min(5, len(labels))),
    }
    return found | {f"few_{s}_{name}": few_labels(train, labels, test, truth, shots=s, seed=seed) for s in SHOTS}


def _nonzero(x: Tensor) -> Tensor:
    """A direction for every row, also for one that is zero throughout."""
    return x + 1e-12


def few_labels(train: Tensor, labels: Tensor, test: Tensor, truth: Tensor, *, shots: int, seed: int) -> float:
    """Accuracy of the nearest class mean (cosine) from so many labels per class, mean over draws of them."""
    classes, codes = torch.unique(labels, return_inverse=True)
    units, asked = normalize(train, dim=-1), normalize(test, dim=-1)
    scores = []
    for draw in range(DRAWS):
        order = torch.randperm(len(codes), generator=torch.Generator().manual_seed(1000 * seed + draw))
        drawn = one_hot(codes[order], len(classes))
        first = (drawn.cumsum(0) * drawn).sum(1) <= shots  # the first rows of each class in this order
        rows = order[first]
        centres = normalize(one_hot(codes[rows], len(classes)).to(units).T @ units[rows], dim=-1)
        scores.append(float((classes[(asked @ centres.T).argmax(1)] == truth).double().mean()))
    return statistics.fmean(scores)


def moved_probe(train: Points, test: Points) -> float:
    """A probe trained on one view and tested, as it is, on another; mean over the ordered pairs."""
    assert train.labels is not None
    assert test.labels is not None
    scores = []
    here, there = train.present, test.present
    for l, view in enumerate(train.views):
        probe = RidgeProbe(view[here[l]], train.labels[here[l]])
        for m, other in enumerate(test.views):
            if m != l:
                scores.append(probe.accuracy(other[there[m]], test.labels[there[m]]))
    return statistics.fmean(scores)


def recall(points: Points, *, by_class: bool) -> float:
    """The right object is found first from one view in another; mean over the ordered pairs."""
    present = points.present
    pairs = itertools.permutations(range(len(points.views)), 2)
    found = [
        _found(points.views[l], points.views[m], present[l], present[m], points.labels, by_class) for l, m in pairs
    ]
    return statistics.fmean(score for score in found if score is not None)


def recall_from_rest(points: Points, *, by_class: bool, asked: Tensor | None = None) -> float:
    """The right object is found first in a view from the mean of all others; mean over the views.

    `asked`, bool (k, n), says which entries the means are of, by default all; an object without any is not found.
    """
    present, views = points.present, torch.stack(list(points.views))
    asked = present if asked is None else asked
    weighted = normalize(views, dim=-1) * asked.unsqueeze(-1)
    found = []
    for m, view in enumerate(views):
        others = asked.sum(0) - asked[m].long() > 0
        rest = weighted.sum(0) - weighted[m]
        score = _found(rest, view, others, present[m], points.labels, by_class)
        found.append((score or 0.0) * float((others & present[m]).sum() / present[m].sum()))
    return statistics.fmean(found)


def _found(
    queries: Tensor, gallery: Tensor, asked: Tensor, searched: Tensor, labels: Tensor | None, by_class: bool
) -> float | None:
    """The share of objects found first among those searched; None where no object is on both sides."""
    both = asked & searched
    if not bool(both.any()):
        return None
    left, right = normalize(queries[both], dim=-1), normalize(gallery[searched], dim=-1)
    if by_class:
        assert labels is not None
        return float((labels[searched][(left @ right.T).argmax(1)] == labels[both]).double().mean())
    place = searched.cumsum(0) - 1
    return float((truth_ranks(left, right, place[both]) <= 1).double().mean())


def polymatching(points: Points, *, seed: int) -> float:
    """Objects that the best polymatching of 16 matches rightly in all of at most four views."""
    present = points.present[:MATCHED_VIEWS].all(0)
    views = torch.stack(list(points.views[:MATCHED_VIEWS]))[:, present][:, :MATCHED_POINTS]
    return polymatching_accuracy(views, seed=seed) if views.shape[1] >= 2 else float("nan")


def absent(train: Points, test: Points, share: float, shared: bool, by_class: bool, seed: int) -> dict[str, float]:
    """Probe and retrieval when a share of the test's entries is absent; the probe is that of whole training rows."""
    size = (len(test.views), len(test.views[0]))
    left = absent_entries(test.mask, size=size, share=share, seed=seed)
    found = {}
    if train.labels is not None and test.labels is not None:
        join = mean if shared else concatenation
        found["linear"] = RidgeProbe(join(train), train.labels).accuracy(
            join(Points(test.views, None, left)), test.labels
        )
    if shared:
        found["recall_rest"] = recall_from_rest(test, by_class=by_class, asked=left)
    return found


def by_number_of_views(train: Points, test: Points, *, seed: int) -> dict[str, float]:
    """The probe of all views on the mean of s of them, for every s; mean over subsets, at most six of each size."""
    assert train.labels is not None
    assert test.labels is not None
    probe, k, found = RidgeProbe(mean(train), train.labels), len(test.views), {}
    random = torch.Generator().manual_seed(seed)
    for size in range(1, k + 1):
        every = list(itertools.combinations(range(k), size))
        chosen = [every[i] for i in torch.randperm(len(every), generator=random)[:MOST_SUBSETS].tolist()]
        scores = []
        for subset in chosen:
            mask = test.present[list(subset)]
            seen = mask.any(0)
            part = Points([test.views[l][seen] for l in subset], None, mask[:, seen])
            scores.append(probe.accuracy(mean(part), test.labels[seen]))
        found[str(size)] = statistics.fmean(scores)
    return found
