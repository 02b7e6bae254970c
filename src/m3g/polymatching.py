"""Round a coupling to a one-to-one polymatching, and estimate the probability of every membership.

A polymatching is a table (s, k) of row numbers: entry l of a tuple is a row of view l, or -1 (`NO_ROW`) if the tuple
has none. Every row of every view is in exactly one tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import normalize

from m3g.costs import Cost

NO_ROW = -1
MOST_SWEEPS = 100
CHUNK = 2**22  # tuples whose cost is computed at a time
EM_STEPS = 100


def round_coupling(cost: Cost, views: Sequence[Tensor], pair_marginals: Sequence[Tensor]) -> Tensor:
    """Return a polymatching (n_0, k) of low total cost; view 0 is the largest.

    Two initial matchings are improved by `exchange`, and the better result is returned. The first assigns every view to
    view 0 by largest mass; the second assigns the views one after the other by least cost.

    Args:
        cost: the cost of a tuple; it must also accept fewer than k views.
        views: k tensors (n_l, d).
        pair_marginals: k - 1 tensors (n_0, n_l), the mass of the pairs of view 0 and view l.
    """
    n, k = len(views[0]), len(views)
    empty = torch.full((n, k), NO_ROW)
    empty[:, 0] = torch.arange(n)
    by_mass, in_turn = empty.clone(), empty.clone()
    for m in range(1, k):
        by_mass[:, m] = _assigned(-pair_marginals[m - 1])
        in_turn[:, m] = _assigned(added_cost(cost, views, in_turn, m))
    improved = [exchange(cost, views, tuples) for tuples in (by_mass, in_turn)]
    return min(improved, key=lambda tuples: total_cost(cost, views, tuples))


def exchange(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> Tensor:
    """Reassign one view given all others, view by view, until the total cost stops decreasing."""
    tuples, k = tuples.clone(), tuples.shape[1]
    unchanged = 0
    for sweep in range(MOST_SWEEPS * k):
        m = (sweep + 1) % k
        added = added_cost(cost, views, tuples, m)
        column = _assigned(added)
        gain = _chosen(added, tuples[:, m]) - _chosen(added, column)
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
    out = torch.zeros(len(tuples), len(views[m]), dtype=views[m].dtype)
    for others, rows in _patterns(tuples, m):
        for part in rows.split(max(1, CHUNK // len(views[m]))):
            points = [views[l][tuples[part, l]].unsqueeze(1) for l in others]
            whole = cost([*points, views[m].expand(len(part), *views[m].shape)]).dense().reshape(len(part), -1)
            before = cost(points).dense().reshape(-1, 1) if len(others) > 1 else 0.0
            out[part] = (whole - before).cpu()
    return out


def total_cost(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> float:
    """Return the sum of the costs of all tuples; a tuple of one row costs nothing."""
    total = 0.0
    for others, rows in _patterns(tuples, None):
        if len(others) > 1:
            total += float(cost([views[l][tuples[rows, l]].unsqueeze(1) for l in others]).dense().sum())
    return total


def _patterns(tuples: Tensor, without: int | None) -> list[tuple[list[int], Tensor]]:
    """Group tuples by the set of views in which they have a row, ignoring the view `without`."""
    present = tuples != NO_ROW
    if without is not None:
        present[:, without] = False
    kinds, which = present.unique(dim=0, return_inverse=True)
    groups = [(kind.nonzero().flatten().tolist(), (which == i).nonzero().flatten()) for i, kind in enumerate(kinds)]
    return [(others, rows) for others, rows in groups if others]


def _assigned(added: Tensor) -> Tensor:
    """Return the row of each tuple in the assignment of least cost, or `NO_ROW` if it gets none."""
    tuples, rows = linear_sum_assignment(added.cpu().numpy())
    column = torch.full((len(added),), NO_ROW)
    column[torch.from_numpy(tuples)] = torch.from_numpy(rows)
    return column


def _chosen(added: Tensor, column: Tensor) -> float:
    here = column != NO_ROW
    return float(added[here, column[here]].sum())


def scores(cost: Cost, views: Sequence[Tensor], tuples: Tensor, m: int) -> Tensor:
    """Return (s, n_m): how well row j of view m fits the other rows of tuple i; -inf if there are none.

    The score is the inverse hyperbolic tangent of the cosine with the query (`Cost.query`) if the cost defines one, and
    minus the distance to the mean otherwise. Both are approximately normally distributed.
    """
    here = (tuples != NO_ROW).T
    points = torch.stack([view[tuples[:, l].clamp(min=0)].cpu() for l, view in enumerate(views)])
    points = torch.where(here.unsqueeze(-1), points, 0.0)
    others = here.clone()
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

    Mixture model in the style of Fellegi and Sunter (1969): the score of a correct pair is normal with mean
    :math:`\mu_1` and standard deviation :math:`\sigma_1`; that of a wrong pair is normal with the mean and standard
    deviation of all unmatched pairs. A row belongs to one of the s tuples with probability :math:`\rho`:

    .. math:: p_{ij} = \frac{\rho L_{ij}}{\rho \sum_{i'} L_{i'j} + (1 - \rho) s}, \quad L = f_1 / f_0.

    :math:`\mu_1, \sigma_1, \rho` are estimated by expectation maximisation. L is clamped so that it never decreases
    with the score.

    Args:
        score: (s, n_m), see `scores`.
        column: (s,), the row of every tuple in the matching, `NO_ROW` for none.
    """
    where = ((column != NO_ROW) & score[:, 0].isfinite()).nonzero().flatten()
    own = score[where, column[where]]
    wrong = torch.ones_like(score, dtype=torch.bool)
    wrong[where, column[where]] = False
    null = score[wrong & score.isfinite()]
    if len(own) < 2 or len(null) < 2 or not float(null.std()) > 0:  # nothing to compare with
        return torch.where(score.isfinite() & ~wrong, 1.0, 0.0).to(score.dtype)
    mean_0, std_0 = float(null.mean()), float(null.std())
    mean, std, matched = float(own.median()), max(float(own.std()), 1e-3 * std_0), 0.8
    for _ in range(EM_STEPS):
        likelihood = _likelihood_ratio(score, mean, std, mean_0, std_0)
        probability = likelihood / (likelihood.sum(0) + len(score) * (1 - matched) / matched)
        weight = max(float(probability.sum()), 1e-9)
        matched = min(1 - 1e-4, max(1e-4, weight / score.shape[1]))
        finite = torch.where(score.isfinite(), score, 0.0)  # weight 0
        mean = float((probability * finite).sum()) / weight
        std = max((float((probability * (finite - mean) ** 2).sum()) / weight) ** 0.5, 1e-3 * std_0)
    return probability


def _likelihood_ratio(score: Tensor, mean: float, std: float, mean_0: float, std_0: float) -> Tensor:
    """Ratio f_1 / f_0 of two normal densities, clamped at its extremum so that it never decreases with the score."""
    curvature = 1 / std_0**2 - 1 / std**2
    turn = (mean_0 / std_0**2 - mean / std**2) / curvature if curvature else None
    if turn is not None:
        score = score.clamp(max=turn) if curvature < 0 else torch.where(score.isfinite(), score.clamp(min=turn), score)
    exponent = ((score - mean_0) / std_0).square() / 2 - ((score - mean) / std).square() / 2
    ratio = exponent.clamp(max=600.0).exp() * std_0 / std
    return torch.where(score.isfinite(), ratio, 0.0)


def memberships(cost: Cost, views: Sequence[Tensor], tuples: Tensor) -> Tensor:
    """Return (s, k): the probability that a row belongs to its tuple, NaN if the tuple has no row of the view.

    For the only row of a tuple it is 1 minus the probability that it belongs to another tuple.
    """
    out = torch.full(tuples.shape, torch.nan, dtype=views[0].dtype)
    for m in range(tuples.shape[1]):
        where = (tuples[:, m] != NO_ROW).nonzero().flatten()
        table = posterior(scores(cost, views, tuples, m), tuples[:, m])[:, tuples[where, m]]
        own = table[where, torch.arange(len(where))]
        alone = (tuples[where] != NO_ROW).sum(1) == 1
        out[where, m] = torch.where(alone, (1 - table.sum(0)).clamp(min=0.0), own)
    return out


def fit_calibration(member: Tensor, tuples: Tensor, known: Tensor) -> tuple[float, float]:
    r"""Fit :math:`p = \operatorname{sigmoid}(a \operatorname{logit}(p_0) + b)` on known objects (Platt scaling).

    A row of a known object is correct if its tuple has another row of that object. Priors a ~ N(1, 1) and b ~ N(0, 9)
    keep the fit finite.

    Args:
        member: (s, k) memberships :math:`p_0` of the rows of `tuples`.
        tuples: (s, k), a one-to-one matching.
        known: (r, k), the rows of every known object, `NO_ROW` for a view without one.

    Returns:
        The slope a, at least 0.01, and the shift b.
    """
    objects = torch.full_like(tuples, NO_ROW)
    for m in range(tuples.shape[1]):
        object_by_row = torch.full((int(tuples[:, m].max()) + 2,), NO_ROW)  # NO_ROW indexes the last entry
        rows = known[:, m] != NO_ROW
        object_by_row[known[rows, m]] = rows.nonzero().flatten()
        objects[:, m] = object_by_row[tuples[:, m]]
    here = (objects != NO_ROW) & ((tuples != NO_ROW).sum(1, keepdim=True) > 1)
    right = ((objects.unsqueeze(2) == objects.unsqueeze(1)).sum(2) > 1)[here].double()
    features = torch.stack([_logit(member[here].double()), torch.ones(len(right), dtype=torch.float64)], 1)
    precision = torch.diag(torch.tensor([1.0, 1 / 9], dtype=torch.float64))
    coefficients = prior = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(EM_STEPS):  # Newton steps, each limited to length 1
        p = (features @ coefficients).sigmoid()
        gradient = features.T @ (p - right) + precision @ (coefficients - prior)
        step = torch.linalg.solve((features.T * (p * (1 - p))) @ features + precision, gradient)
        coefficients = coefficients - step / max(1.0, float(step.norm()))
    return max(0.01, float(coefficients[0])), float(coefficients[1])


def calibrate(member: Tensor, slope: float, shift: float) -> Tensor:
    """Return sigmoid(slope · logit(member) + shift)."""
    return (slope * _logit(member) + shift).sigmoid()


def _logit(p: Tensor) -> Tensor:
    return p.clamp(1e-3, 1 - 1e-3).logit()


def split(cost: Cost, views: Sequence[Tensor], tuples: Tensor, *, threshold: float) -> Tensor:
    """Remove rows with a membership probability below `threshold` from their tuples, and match them again.

    Each pass removes the least probable row of every such tuple, until none is left. Removed rows join tuples that lack
    their view, including those of other removed rows, if the probability is at least `threshold`.
    """
    for _ in range(MOST_SWEEPS):
        member = torch.where((tuples != NO_ROW).sum(1, keepdim=True) > 1, memberships(cost, views, tuples), torch.nan)
        lowest, view = member.nan_to_num(nan=torch.inf).min(1)
        leaving = (lowest < threshold).nonzero().flatten()
        if not len(leaving):
            break
        alone = torch.full((len(leaving), tuples.shape[1]), NO_ROW)
        alone[torch.arange(len(leaving)), view[leaving]] = tuples[leaving, view[leaving]]
        tuples = tuples.clone()
        tuples[leaving, view[leaving]] = NO_ROW
        tuples = torch.cat([tuples, alone])
    for m in range(tuples.shape[1]):
        tuples = _join(cost, views, tuples, m, threshold=threshold)
    return tuples


def _join(cost: Cost, views: Sequence[Tensor], tuples: Tensor, m: int, *, threshold: float) -> Tensor:
    """Add single rows of view m to tuples that have no row of this view."""
    single = ((tuples[:, m] != NO_ROW) & ((tuples != NO_ROW).sum(1) == 1)).nonzero().flatten()
    lacking = (tuples[:, m] == NO_ROW).nonzero().flatten()
    if not len(single) or not len(lacking):
        return tuples
    table = posterior(scores(cost, views, tuples, m), tuples[:, m])[lacking][:, tuples[single, m]]
    table = torch.where(table >= threshold, table, 0.0)
    target, source = (torch.from_numpy(part) for part in linear_sum_assignment(-table.numpy()))
    joined = table[target, source] > 0
    target, source = lacking[target[joined]], single[source[joined]]
    tuples = tuples.clone()
    tuples[target, m] = tuples[source, m]
    kept = torch.ones(len(tuples), dtype=torch.bool)
    kept[source] = False
    return tuples[kept]
