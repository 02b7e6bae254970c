"""Rounding of a coupling to a one-to-one polymatching, and the probability that a row belongs to its tuple.

A polymatching is represented by a table (s, k) of row numbers: entry l of a tuple is a row of view l, or -1 (`NO_ROW`)
if the tuple has none. Every row of every view is in exactly one tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from m3g.costs import Cost

NO_ROW = -1
MAX_SWEEPS = 100
CHUNK = 2**22  # tuples whose cost is computed at a time
EM_STEPS = 100
NEWTON_STEPS = 100


def round_coupling(cost: Cost, views: Sequence[Tensor], pair_marginals: Sequence[Tensor]) -> Tensor:
    """Return a polymatching (n_0, k) of low total cost; view 0 must be the largest.

    Two initial matchings are improved by `exchange`, and the better result is returned. The first assigns the rows of
    every view to those of view 0 by largest mass. The second assigns the views one after the other by lowest cost.

    Args:
        cost: the cost of a tuple; it must also accept fewer than k views.
        views: k tensors (n_l, d).
        pair_marginals: k - 1 tensors (n_0, n_l), the mass of the pairs of view 0 and view l.
    """
    n, k = len(views[0]), len(views)
    empty = torch.full((n, k), NO_ROW)
    empty[:, 0] = torch.arange(n)
    by_mass, one_by_one = empty.clone(), empty.clone()
    for m in range(1, k):
        by_mass[:, m] = _best_assignment(-pair_marginals[m - 1])
        one_by_one[:, m] = _best_assignment(added_cost(cost, views, one_by_one, m))
    improved = [exchange(cost, views, tuples) for tuples in (by_mass, one_by_one)]
    return min(improved, key=lambda tuples: total_cost(cost, views, tuples))


def exchange(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> Tensor:
    """Return the tuples after reassigning the rows of one view at a time until the total cost stops decreasing."""
    tuples, k = tuples.clone(), tuples.shape[1]
    unchanged = 0
    for update in range(MAX_SWEEPS * k):
        m = (update + 1) % k
        added = added_cost(cost, views, tuples, m)
        column = _best_assignment(added)
        gain = _assignment_cost(added, tuples[:, m]) - _assignment_cost(added, column)
        if gain > 1e-12 * max(1.0, float(added.abs().max())):
            tuples[:, m] = column
            unchanged = 0
        else:
            unchanged += 1
        if unchanged >= k:
            break
    return tuples


def added_cost(cost: Cost, views: Sequence[Tensor], tuples: Tensor, m: int) -> Tensor:
    """Return (s, n_m): the cost that row j of view m adds to tuple i, given the rows of the other views."""
    added = torch.zeros(len(tuples), len(views[m]), dtype=views[m].dtype)
    for others, rows in _grouped_by_views(tuples, m):
        for part in rows.split(max(1, CHUNK // len(views[m]))):
            points = [views[l][tuples[part, l]].unsqueeze(1) for l in others]
            with_row = cost([*points, views[m].expand(len(part), *views[m].shape)]).dense().reshape(len(part), -1)
            without_row = cost(points).dense().reshape(-1, 1) if len(others) > 1 else 0.0
            added[part] = (with_row - without_row).cpu()
    return added


def total_cost(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> float:
    """Return the sum of the costs of all tuples; the cost of a tuple of one row is 0."""
    total = 0.0
    for present, rows in _grouped_by_views(tuples, None):
        if len(present) > 1:
            total += float(cost([views[l][tuples[rows, l]].unsqueeze(1) for l in present]).dense().sum())
    return total


def _grouped_by_views(tuples: Tensor, without: int | None) -> list[tuple[list[int], Tensor]]:
    """Group tuples by the views in which they have a row, ignoring view `without`.

    Returns pairs of these views and the indices of the tuples. Tuples without a row are omitted.
    """
    present = tuples != NO_ROW
    if without is not None:
        present[:, without] = False
    patterns, inverse = present.unique(dim=0, return_inverse=True)
    groups = [
        (pattern.nonzero().flatten().tolist(), (inverse == i).nonzero().flatten()) for i, pattern in enumerate(patterns)
    ]
    return [(views, rows) for views, rows in groups if views]


def _best_assignment(added: Tensor) -> Tensor:
    """Return the row (s,) of each tuple in the assignment of lowest total cost, or `NO_ROW` if it gets none.

    `added` (s, n_m) is the cost of assigning a row to a tuple.
    """
    tuples, rows = linear_sum_assignment(added.cpu().numpy())
    column = torch.full((len(added),), NO_ROW)
    column[torch.from_numpy(tuples)] = torch.from_numpy(rows)
    return column


def _assignment_cost(added: Tensor, column: Tensor) -> float:
    """Return the total cost of an assignment (s,), for the costs `added` (s, n_m)."""
    assigned = column != NO_ROW
    return float(added[assigned, column[assigned]].sum())


def scores(cost: Cost, views: Sequence[Tensor], tuples: Tensor, m: int) -> Tensor:
    """Return (s, n_m): how well row j of view m fits the other rows of tuple i; -inf if there are none.

    The score is the inverse hyperbolic tangent of the cosine with the query (`Cost.query`) if the cost defines one, and
    minus the distance to the mean otherwise. Both are approximately normally distributed.
    """
    present = (tuples != NO_ROW).T
    points = torch.stack([view[tuples[:, l].clamp(min=0)].cpu() for l, view in enumerate(views)])
    points = torch.where(present.unsqueeze(-1), points, 0.0)
    others = present.clone()
    others[m] = False
    candidates = views[m].cpu()
    if cost.linear:
        query = normalize(cost.query(points, m, mask=others), dim=-1)
        cosine = query @ normalize(cost.candidates(candidates), dim=-1).T
        fit = cosine.clamp(-1 + 1e-9, 1 - 1e-9).atanh()
    else:
        centres = (points * others.unsqueeze(-1)).sum(0) / others.sum(0).clamp(min=1).unsqueeze(-1)
        fit = -torch.cdist(centres, candidates)
    return torch.where(others.any(0).unsqueeze(1), fit, -torch.inf)


def posterior(score: Tensor, column: Tensor) -> Tensor:
    r"""Return (s, n_m): the probability that row j of a view belongs to tuple i, estimated without labels.

    The mixture model of pairs (i, j) follows Fellegi and Sunter (1969): the score of a correct pair is normal with mean
    :math:`\mu_1` and standard deviation :math:`\sigma_1`; that of a wrong pair is normal with the mean and standard
    deviation of all unmatched pairs. A row belongs to one of the s tuples with probability :math:`\rho`:

    .. math:: p_{ij} = \frac{\rho L_{ij}}{\rho \sum_{i'} L_{i'j} + (1 - \rho) s}, \quad L = f_1 / f_0

    where :math:`L_{ij}` is the ratio of the densities :math:`f_1` of a correct and :math:`f_0` of a wrong pair at the
    score of the pair (i, j). It is clamped so that it never decreases with the score. :math:`\mu_1, \sigma_1, \rho`
    are estimated by expectation maximisation.

    Args:
        score: (s, n_m), see `scores`.
        column: (s,), the row of every tuple in the matching, `NO_ROW` for none.
    """
    matched = ((column != NO_ROW) & score[:, 0].isfinite()).nonzero().flatten()
    matched_scores = score[matched, column[matched]]
    unmatched = torch.ones_like(score, dtype=torch.bool)
    unmatched[matched, column[matched]] = False
    other_scores = score[unmatched & score.isfinite()]
    if len(matched_scores) < 2 or len(other_scores) < 2 or not float(other_scores.std()) > 0:
        # The model cannot be fitted, so the matching is treated as certain.
        return torch.where(score.isfinite() & ~unmatched, 1.0, 0.0).to(score.dtype)
    mean_0, std_0 = float(other_scores.mean()), float(other_scores.std())
    mean, std, rho = float(matched_scores.median()), max(float(matched_scores.std()), 1e-3 * std_0), 0.8
    for _ in range(EM_STEPS):
        ratio = _likelihood_ratio(score, mean, std, mean_0, std_0)
        probability = ratio / (ratio.sum(0) + len(score) * (1 - rho) / rho)
        weight = max(float(probability.sum()), 1e-9)
        rho = min(1 - 1e-4, max(1e-4, weight / score.shape[1]))
        finite = torch.where(score.isfinite(), score, 0.0)  # infinite scores have probability 0
        mean = float((probability * finite).sum()) / weight
        std = max((float((probability * (finite - mean) ** 2).sum()) / weight) ** 0.5, 1e-3 * std_0)
    return probability


def _likelihood_ratio(score: Tensor, mean: float, std: float, mean_0: float, std_0: float) -> Tensor:
    """Return the ratio f_1 / f_0 of normal densities, clamped at its extremum so that it is non-decreasing."""
    curvature = 1 / std_0**2 - 1 / std**2
    extremum = (mean_0 / std_0**2 - mean / std**2) / curvature if curvature else None
    if extremum is not None and curvature < 0:
        score = score.clamp(max=extremum)
    elif extremum is not None:
        score = torch.where(score.isfinite(), score.clamp(min=extremum), score)
    exponent = ((score - mean_0) / std_0).square() / 2 - ((score - mean) / std).square() / 2
    ratio = exponent.clamp(max=600.0).exp() * std_0 / std
    return torch.where(score.isfinite(), ratio, 0.0)


def memberships(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> Tensor:
    """Return (s, k): the probability that a row belongs to its tuple, NaN if the tuple has no row of the view.

    For the only row of a tuple, it is the probability that the row belongs to no other tuple.
    """
    membership = torch.full(tuples.shape, torch.nan, dtype=views[0].dtype)
    for m in range(tuples.shape[1]):
        with_row = (tuples[:, m] != NO_ROW).nonzero().flatten()
        probability = posterior(scores(cost, views, tuples, m), tuples[:, m])[:, tuples[with_row, m]]
        in_tuple = probability[with_row, torch.arange(len(with_row))]
        in_no_tuple = (1 - probability.sum(0)).clamp(min=0.0)
        alone = (tuples[with_row] != NO_ROW).sum(1) == 1
        membership[with_row, m] = torch.where(alone, in_no_tuple, in_tuple)
    return membership


def fit_calibration(membership: Tensor, tuples: Tensor, known: Tensor) -> tuple[float, float]:
    r"""Fit :math:`p = \operatorname{sigmoid}(a \operatorname{logit}(p_0) + b)` on known objects (Platt scaling).

    A row of a known object is correct if its tuple has another row of that object. Priors a ~ N(1, 1) and b ~ N(0, 9)
    keep the coefficients finite.

    Args:
        membership: (s, k), probabilities :math:`p_0` of the rows of `tuples`, see `memberships`.
        tuples: (s, k), a one-to-one matching.
        known: (r, k), the rows of every known object, `NO_ROW` for a view without one.

    Returns:
        The slope a, at least 0.01, and the shift b.
    """
    objects = torch.full_like(tuples, NO_ROW)
    for m in range(tuples.shape[1]):
        object_by_row = torch.full((int(tuples[:, m].max()) + 2,), NO_ROW)  # NO_ROW indexes the last entry
        has_row = known[:, m] != NO_ROW
        object_by_row[known[has_row, m]] = has_row.nonzero().flatten()
        objects[:, m] = object_by_row[tuples[:, m]]
    used = (objects != NO_ROW) & ((tuples != NO_ROW).sum(1, keepdim=True) > 1)
    correct = ((objects.unsqueeze(2) == objects.unsqueeze(1)).sum(2) > 1)[used].double()
    features = torch.stack([_logit(membership[used].double()), torch.ones(len(correct), dtype=torch.float64)], 1)
    precision = torch.diag(torch.tensor([1.0, 1 / 9], dtype=torch.float64))
    coefficients = prior = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(NEWTON_STEPS):  # each step is limited to length 1
        p = (features @ coefficients).sigmoid()
        gradient = features.T @ (p - correct) + precision @ (coefficients - prior)
        step = torch.linalg.solve((features.T * (p * (1 - p))) @ features + precision, gradient)
        coefficients = coefficients - step / max(1.0, float(step.norm()))
    return max(0.01, float(coefficients[0])), float(coefficients[1])


def calibrate(membership: Tensor, slope: float, shift: float) -> Tensor:
    """Return sigmoid(slope · logit(p) + shift), where p is `membership` clamped to the range from 0.001 to 0.999."""
    return (slope * _logit(membership) + shift).sigmoid()


def _logit(p: Tensor) -> Tensor:
    return p.clamp(1e-3, 1 - 1e-3).logit()


def split(cost: Cost, views: Sequence[Tensor], tuples: Tensor, *, threshold: float) -> Tensor:
    """Return the tuples after removing rows with a membership probability below `threshold` and matching them again.

    Each pass removes at most one row of every tuple, the least probable, until no row is below the threshold. A removed
    row joins another tuple without a row of its view, or another removed row, if the probability is at least
    `threshold`.
    """
    for _ in range(MAX_SWEEPS):
        has_partner = (tuples != NO_ROW).sum(1, keepdim=True) > 1
        membership = torch.where(has_partner, memberships(cost, views, tuples), torch.nan)
        lowest, view = membership.nan_to_num(nan=torch.inf).min(1)
        leaving = (lowest < threshold).nonzero().flatten()
        if not len(leaving):
            break
        alone = torch.full((len(leaving), tuples.shape[1]), NO_ROW)
        alone[torch.arange(len(leaving)), view[leaving]] = tuples[leaving, view[leaving]]
        tuples = tuples.clone()
        tuples[leaving, view[leaving]] = NO_ROW
        tuples = torch.cat([tuples, alone])
    for m in range(tuples.shape[1]):
        tuples = _with_joined_rows(cost, views, tuples, m, threshold=threshold)
    return tuples


def _with_joined_rows(cost: Cost, views: Sequence[Tensor], tuples: Tensor, m: int, *, threshold: float) -> Tensor:
    """Return the tuples after adding single rows of view m to tuples without a row of this view."""
    single = ((tuples[:, m] != NO_ROW) & ((tuples != NO_ROW).sum(1) == 1)).nonzero().flatten()
    lacking = (tuples[:, m] == NO_ROW).nonzero().flatten()
    if not len(single) or not len(lacking):
        return tuples
    probability = posterior(scores(cost, views, tuples, m), tuples[:, m])[lacking][:, tuples[single, m]]
    probability = torch.where(probability >= threshold, probability, 0.0)
    target, source = map(torch.from_numpy, linear_sum_assignment(-probability.numpy()))
    joined = probability[target, source] > 0
    target, source = lacking[target[joined]], single[source[joined]]
    tuples = tuples.clone()
    tuples[target, m] = tuples[source, m]
    remains = torch.ones(len(tuples), dtype=torch.bool)
    remains[source] = False
    return tuples[remains]
