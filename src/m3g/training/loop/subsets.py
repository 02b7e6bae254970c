"""Number of views compared at a time, for the command line, the experiments and the scikit-learn estimators."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch

from m3g import losses
from m3g.costs import CircularVariance
from m3g.nets import MultiViewNet
from m3g.solvers import Auto, Sampled

QUICK_TUPLES = 2e7  # maximum number of tuples n ** k that the exact solver of M3G handles in tens of milliseconds
QUICK_STEP = 6e7  # maximum total number of tuples over the subsets of a step
CORE_FLOPS = 5e10  # floating-point operations per second of one core in the training of an encoder


class Subsets(NamedTuple):
    """Number of views compared at a time, which form a subset, and number of subsets per step."""

    size: int
    number: int

    def draw(self, k: int) -> list[list[int]]:
        """Return `number` random subsets of `size` out of k views, drawn with torch's generator."""
        subsets = [list(subset) for subset in itertools.combinations(range(k), self.size)]
        if self.number == len(subsets):
            return subsets
        return [subsets[i] for i in torch.randperm(len(subsets))[: self.number]]


def exact_seconds(k: int, n: int) -> float:
    """Estimate the seconds for an exact gap with its gradient on one core.

    The constant is fitted to measurements at a temperature of 0.1.
    """
    return 6.5e-10 * float(n) ** k


def sampled_seconds(k: int, n: int) -> float:
    """Estimate the seconds for a gap with its gradient by the sampled solver, which is linear in k and n."""
    return 1.4e-3 * k * n


def encoder_seconds(net: MultiViewNet, *, k: int, n: int) -> float:
    """Return a low estimate of the training time of encoders and heads per batch on one core, in seconds.

    Each weight is counted once per point, although convolutions use a weight many times.
    """
    weights = sum(weight.numel() for weight in net.parameters()) * (k if len(net.encoders) == 1 else 1)
    return 6 * weights * n / CORE_FLOPS


def select_subsets(
    loss: losses.ViewLoss,
    *,
    k: int,
    n: int,
    views_per_step: int | None = None,
    subsets_per_step: int | None = None,
    encoder_seconds: float = 0.0,
) -> Subsets:
    """Return the size and number of the subsets of views that a step compares: as requested, or the largest fast ones.

    By default, all views are compared at once if the loss does not visit all tuples, if the exact solver is fast, or if
    a solver takes no longer than the encoders: the exact one or, if the loss may use it, the sampled one. Otherwise,
    the subsets have at least 3 views, even if these are not fast.
    """
    size, number = views_per_step, subsets_per_step
    if size is not None and not 2 <= size <= k:
        raise ValueError(f"views_per_step must be None or a number from 2 to {k}, got {size!r}.")
    if size is None:
        quick = [s for s in range(3, k) if n**s <= QUICK_TUPLES]
        solve = min(exact_seconds(k, n), sampled_seconds(k, n) if _can_be_sampled(loss) else math.inf)
        too_many = loss.visits_all_tuples and n**k > QUICK_TUPLES and solve > encoder_seconds
        size = max([min(3, k), *quick]) if too_many else k
    most = math.comb(k, size)
    if number is None:
        number = min(most, 20, max(1, int(QUICK_STEP / n**size)) if loss.visits_all_tuples else most)
    elif not 1 <= number <= most:
        raise ValueError(
            f"subsets_per_step must be None or a number from 1 to {most}, the number of subsets of {size} of the "
            f"{k} views, got {number!r}."
        )
    return Subsets(size, number)


def sample_if_quicker(loss: losses.ViewLoss, *, k: int, n: int) -> None:
    """Set `loss.solver` to the sampled solver if the loss may use it and it is faster than a slow exact solver."""
    if _can_be_sampled(loss) and n**k > QUICK_TUPLES and sampled_seconds(k, n) < exact_seconds(k, n):
        assert isinstance(loss, losses.M3GLoss)
        loss.solver = Sampled()


def _can_be_sampled(loss: losses.ViewLoss) -> bool:
    """Return whether the loss may use the sampled solver for all views: with solver "auto" and the circular variance.

    For other costs, the sampled solver uses lists of tuples and takes several times as long.
    """
    if type(loss) is not losses.M3GLoss or loss.solver != Auto():
        return False
    return isinstance(loss.cost, CircularVariance)
