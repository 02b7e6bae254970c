"""Selection of the network that is kept after training, for `m3g train` and the scikit-learn estimators."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from m3g.costs import Cost
from m3g.evaluation.embedded import Embedded
from m3g.evaluation.linear_cca import mean_reciprocal_rank
from m3g.evaluation.retrieval import recall_from_others

Weights = dict[str, Tensor]

MIN_ROWS = 10  # with fewer validation rows, the score is not informative
EVALUATIONS = 25  # approximate number of evaluations in a run
MIN_GAIN = 0.005  # smaller improvements of the score are noise with a few hundred rows
SHARES = tuple(tenth / 10 for tenth in range(1, 10))  # fractions of the best network in its average with linear CCA


def epochs_between(epochs: int) -> int:
    """Return the number of epochs between two evaluations on the validation rows."""
    return max(1, round(epochs / EVALUATIONS))


def retrieval_score(points: Embedded, readout: Cost | None = None) -> float:
    """Return the mean reciprocal rank of the true partners or, with a `readout`, R@1 from all other views."""
    assert points.embeddings is not None
    if readout is None:
        return mean_reciprocal_rank(points.embeddings, points.mask)
    recalls = [recall_from_others(points, m, readout=readout) for m in range(len(points.embeddings))]
    return statistics.fmean([value for value in recalls if value is not None] or [math.nan])


def not_worse(contributions: Tensor, best: Tensor) -> bool:
    """Return whether the sum of `contributions` (n,) is within one standard error of the sum of `best`, or above it.

    The standard error is that of the difference, paired by row.

    Example:
        >>> best = torch.tensor([0.2, 0.2, 0.2, 0.2])
        >>> not_worse(best - torch.tensor([0.1, 0.0, 0.0, 0.0]), best), not_worse(best - 0.1, best)
        (False, False)
        >>> not_worse(best - torch.tensor([0.1, -0.1, 0.1, 0.0]), best)
        True
    """
    deficit = best - contributions
    return float(deficit.sum()) <= float((deficit - deficit.mean()).norm())


@dataclass
class BestWeights:
    """The weights with the best validation score so far.

    If training starts at linear CCA, the result is an average, `share` times the best weights plus (1 - `share`) times
    the initial ones. `share` is the smallest positive multiple of 0.1 for which the score of the average is at most one
    standard error below the best score. The standard error is that of their difference, paired by validation row. Among
    networks that do not differ significantly on the validation rows, the one closest to linear CCA overfits the
    training rows least, and linear probes on it are more accurate (docs/results/defaults.md).

    Attributes:
        best, epoch, weights: the best score, its epoch (0 before training) and its weights.
        since: number of evaluations since the best one.
        start: the weights of linear CCA; empty if training does not start there.
        share: fraction of the best weights in the average; 1 without averaging.

    Example:
        >>> kept = BestWeights()
        >>> kept.improved(0.5, epoch=0), kept.improved(0.503, epoch=1), kept.improved(0.6, epoch=2)
        (True, False, True)

    References: M. Wortsman et al., *Robust fine-tuning of zero-shot models*, 2022, for the average; T. Hastie,
    R. Tibshirani, J. Friedman, *The Elements of Statistical Learning*, section 7.10, for the standard error.
    """

    best: float = -math.inf
    epoch: int = 0
    since: int = 0
    weights: Weights = field(default_factory=dict)
    start: Weights = field(default_factory=dict)
    share: float = 1.0

    def improved(self, score: float, *, epoch: int) -> bool:
        """Record a score and return whether it exceeds the best by more than MIN_GAIN.

        If it does, the caller must set `weights`.
        """
        self.since += 1
        if score <= self.best + MIN_GAIN:
            return False
        self.best, self.epoch, self.since = score, epoch, 0
        return True

    def selected_weights(
        self,
        contributions: Callable[[Weights], Tensor],
        *,
        broadcast: Callable[[bool], bool] = lambda decision: decision,
    ) -> Weights:
        """Return the weights to keep after training, and set `share`.

        Args:
            contributions: returns the contribution of each validation row to the score of a network with these
                weights, as `rank_contributions` does.
            broadcast: returns, in every process, the decision of the first process.
        """
        if not (self.start and self.epoch):
            return self.weights
        best = contributions(self.weights)
        for share in SHARES:
            average = {name: torch.lerp(part, self.weights[name], share) for name, part in self.start.items()}
            if broadcast(not_worse(contributions(average), best)):
                self.share = share
                return average
        return self.weights
