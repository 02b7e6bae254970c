"""Scores with missing views: for subsets of the views (all if k <= 6), and for entries dropped at increasing rates.

The probe is trained once, on all present views of the training rows, and tested on rows reduced to some of the views.
Retrieval searches for the object in a view that is not shown, with a query from the shown views, by default their mean.
Its recall is averaged over the views that are not shown. For drop rates, each view is hidden and searched in turn, and
entries of the other views are dropped.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from m3g.data.entries import drop_entries
from m3g.evaluation.baselines import guess
from m3g.evaluation.embedded import Embedded, Readout, read_out
from m3g.evaluation.probes import Probe
from m3g.evaluation.retrieval import recall_from_others

ALL_UP_TO = 6  # number of views up to which every subset is evaluated
PER_SIZE = 10  # maximum number of subsets of each size if there are more views
DROP_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DRAWS = 3  # random draws of the dropped entries per rate
MAX_ROWS = 1000  # maximum number of test rows used for retrieval
Score = Literal["linear", "linear_raw", "recall_at_1"]


class SubsetScores(TypedDict, total=False):
    """Scores of one subset of the views; None if no row can be scored."""

    views: list[int]
    linear: float | None
    linear_raw: float | None
    recall_at_1: float | None


class Missing(TypedDict, total=False):
    """Scores with missing views, as stored in `results.json`; see `without_views`."""

    every_subset: bool
    subsets: list[SubsetScores]
    curve: dict[str, list[float | None]]
    chance: dict[str, float]


def view_subsets(k: int, *, seed: int = 0) -> list[tuple[int, ...]]:
    """Return all non-empty subsets of k <= 6 views; for more views, at most 10 of each size, drawn with the seed.

    Example:
        >>> view_subsets(2)
        [(0,), (1,), (0, 1)]
        >>> len(view_subsets(6)), len(view_subsets(7)), len(view_subsets(12))
        (63, 55, 111)
    """
    random = np.random.default_rng([seed, k])
    subsets: list[tuple[int, ...]] = []
    for size in range(1, k + 1):
        if k <= ALL_UP_TO or math.comb(k, size) <= PER_SIZE:
            subsets += itertools.combinations(range(k), size)
            continue
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < PER_SIZE:
            drawn.add(tuple(sorted(random.permutation(k)[:size].tolist())))
        subsets += sorted(drawn)
    return subsets


def without_views(
    train: Embedded, test: Embedded, *, raw: tuple[Embedded, Embedded] | None = None, readout: Readout = "mean"
) -> Missing:
    """Return the scores of subsets of the views and of drop rates, as plain values for `results.json`.

    The result has these keys:

    - `subsets`: one mapping per subset, with the indices of its `views`, the accuracy `linear` of the probe, and
      `recall_at_1`, which is None if all views are shown. With `raw`, also `linear_raw`, the accuracy of a probe on the
      concatenated inputs, in which the mean of the training rows replaces missing views. `linear` and `linear_raw`
      require labels. A score is None if no row can be scored.
    - `curve`: lists of equal length: `share`, the drop rates (probabilities with which entries are dropped), and the
      scores above at these rates, means of three draws. Every object keeps at least one view, so the fraction of
      missing entries is lower.
    - `chance`: the chance levels of `linear` (also valid for `linear_raw`) and of `recall_at_1`.
    - `every_subset`: whether `subsets` contains all subsets.
    """
    assert test.embeddings is not None
    k, n = test.embeddings.shape[:2]
    present = test.present.cpu()
    subsets = view_subsets(k)
    by_subset = [present & _is_in(subset, k) for subset in subsets]
    by_rate = [_remaining(present, rate, seed=draw) for rate in DROP_RATES for draw in range(DRAWS)]
    shown = by_subset + by_rate

    subset_scores: list[SubsetScores] = [{"views": list(subset)} for subset in subsets]
    curve: dict[str, list[float | None]] = {"share": list(DROP_RATES)}
    chance: dict[str, float] = {}
    for name, scores in _accuracies(train, test, raw, shown, readout).items():
        for entry, score in zip(subset_scores, scores):
            entry[name] = score
        draws = scores[len(subsets) :]
        curve[name] = [_mean(draws[i : i + DRAWS]) for i in range(0, len(draws), DRAWS)]
    if train.labels is not None and test.labels is not None:
        chance["linear"] = guess(train.labels, test.labels)

    rows = torch.linspace(0, n - 1, min(n, MAX_ROWS)).long()
    present = present[:, rows]
    points = Embedded(test.embeddings.double().cpu()[:, rows], mask=present)
    for entry, subset, entries in zip(subset_scores, subsets, by_subset):
        hidden = [m for m in range(k) if m not in subset]
        entry["recall_at_1"] = _mean(
            [recall_from_others(points, m, shown=entries[:, rows], readout=readout) for m in hidden]
        )
    curve["recall_at_1"] = []
    for rate in DROP_RATES:
        values = []
        for m, draw in itertools.product(range(k), range(DRAWS)):
            others = present.clone()
            others[m] = False
            remaining = _remaining(others, rate, seed=draw)
            values.append(recall_from_others(points, m, shown=remaining, readout=readout))
        curve["recall_at_1"].append(_mean(values))
    sizes = present.sum(1).double()
    chance["recall_at_1"] = float((1 / sizes[sizes > 0]).mean())
    return {"every_subset": k <= ALL_UP_TO, "subsets": subset_scores, "curve": curve, "chance": chance}


def _remaining(present: Tensor, rate: float, *, seed: int) -> Tensor:
    """Return the entries, bool (k, n), that remain at a drop rate; every object keeps at least one."""
    draws = torch.rand(present.shape, generator=torch.Generator().manual_seed(seed))
    return drop_entries(present, draws, fraction=rate)


def _is_in(subset: tuple[int, ...], k: int) -> Tensor:
    """Return, as bool (k, 1), whether each view is in the subset."""
    return torch.tensor([[l in subset] for l in range(k)])


def _mean(values: list[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _accuracies(
    train: Embedded, test: Embedded, raw: tuple[Embedded, Embedded] | None, shown: list[Tensor], readout: Readout
) -> dict[Score, list[float | None]]:
    """Return the accuracies of the probes for each mask in `shown`, bool (k, n); None for a mask without entries.

    The result is empty without labels.
    """
    if train.labels is None or test.labels is None or train.embeddings is None or test.embeddings is None:
        return {}
    rows_shown = [entries.any(0) for entries in shown]
    scored = [(entries[:, rows], rows) for entries, rows in zip(shown, rows_shown) if bool(rows.any())]
    embeddings, labels = test.embeddings.cpu(), test.labels
    tests = [(read_out(embeddings[:, rows], entries, readout=readout), labels[rows]) for entries, rows in scored]
    probe = Probe(train.read_out(readout), train.labels)
    scores: dict[Score, list[float]] = {"linear": [probe.accuracy(*rows) for rows in tests]}
    if raw is not None:
        raw_train, raw_test = raw
        assert raw_train.features is not None
        assert raw_test.features is not None
        flat = [[part.flatten(1) for part in split.features or []] for split in (raw_train, raw_test)]
        means = [
            (part if raw_train.mask is None else part[raw_train.mask[l]]).mean(0) for l, part in enumerate(flat[0])
        ]
        # Features are centred, so that zero, the value of a missing view, is their mean.
        train_features, test_features = ([part - mean for part, mean in zip(parts, means)] for parts in flat)
        tests = [
            (read_out([part[rows] for part in test_features], entries, readout="concat"), labels[rows])
            for entries, rows in scored
        ]
        probe = Probe(read_out(train_features, raw_train.mask, readout="concat"), train.labels)
        scores["linear_raw"] = [probe.accuracy(*rows) for rows in tests]
    padded: dict[Score, list[float | None]] = {}
    for name, values in scores.items():
        remaining = iter(values)
        padded[name] = [next(remaining) if bool(rows.any()) else None for rows in rows_shown]
    return padded
