"""Matching of k sets of points with unknown correspondence, by the best polymatching."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Cost, CostLike, as_cost
from m3g.costs.grounds import unit_or_zero
from m3g.costs.reordered import reordered
from m3g.losses.convergence import ConvergenceWarning
from m3g.losses.entropy import Entropy
from m3g.polymatching import NO_ROW, calibrate, fit_calibration, memberships, round_coupling, split
from m3g.solvers import Solution, SolverLike, solve

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Maximum number of tuples for exhaustive enumeration; beyond it, a local search selects the tuple of each point.
MAX_TUPLES = 2**26
MAX_SWEEPS = 100
DEFAULT_EPSILON = 0.01


@dataclass(frozen=True)
class Matching:
    """Result of `match`: tuples of points that belong together, with their probabilities.

    Attributes:
        tuples: (s, k), row numbers of s tuples; entry l is a row of view l. Every point of the anchor view has
            `alternatives` consecutive tuples, the most probable first. In a one-to-one matching, every row of every
            view is in exactly one tuple, and -1 marks a view in which the tuple has no row.
        probabilities: (s,), the mass of the tuple divided by the mass of its anchor point: the probability under the
            coupling that the partners of this point are exactly those of the tuple. Over all possible tuples of a
            point, they sum to 1. In a one-to-one matching, they are the minimum of `memberships` over the tuple.
        anchor: index of the anchor view, whose points all have a tuple. It is the largest view, and the first one in
            case of a tie.
        solution: the solution of the problem, with the anchor as its first view.
        memberships: (s, k), only for a one-to-one matching: the probability that a row belongs with the other rows of
            its tuple, or NaN where the tuple has no row. For a row alone in its tuple, it is the probability that the
            row belongs to no other tuple.
    """

    tuples: Tensor
    probabilities: Tensor
    anchor: int
    solution: Solution
    memberships: Tensor | None = None

    def unused(self, l: int) -> int:
        """Return the number of points of view l in no tuple or, in a one-to-one matching, alone in their tuple."""
        k = self.tuples.shape[1]
        l = _checks.view_index("l", l, k)
        order = _anchor_first(self.anchor, k)
        if self.memberships is not None:
            present = self.tuples != NO_ROW
            return int((present[:, l] & (present.sum(1) == 1)).sum())
        return self.solution.problem.sizes[order.index(l)] - len(self.tuples[:, l].unique())


def match(
    views: Sequence[ArrayLike] | Tensor,
    *,
    epsilon: float | None = None,
    temperature: float | None = None,
    cost: CostLike = "cv",
    solver: SolverLike = "auto",
    tol: float = 1e-4,
    normalize: bool = True,
    alternatives: int = 1,
    one_to_one: bool = False,
    allow_unmatched: bool | float = False,
    known: Sequence[Sequence[int]] | Tensor | None = None,
) -> Matching:
    r"""Match k sets of points with unknown correspondence and possibly different sizes.

    The result contains, for every point of the largest view, the tuple of largest mass in the coupling with the lowest
    regularised cost (Eq. 11 of the paper, with marginals :math:`1 / n_l`):

    .. math:: P^\star = \operatorname*{argmin}_P \langle P, C\rangle + \varepsilon \langle P, \log P - 1\rangle

    With a small epsilon and views of equal size, most points are in exactly one tuple. If the sizes differ and the
    largest view has n points, a point of a smaller view with n_l points is in n / n_l tuples on average.

    Args:
        views: k arrays or tensors (n_l, d) in a common space.
        epsilon: weight of the entropy, 0.01 by default. A smaller value concentrates the mass on fewer tuples; in the
            limit of 0, two views of equal size are matched by the assignment of lowest cost.
        temperature: the same weight in units of InfoNCE, as in `m3g.matching_gap`; set at most one of the two.
        cost, solver, tol: as in `m3g.matching_gap`; with `one_to_one`, the cost must also accept fewer than k views.
        normalize: scale every vector to unit length first.
        alternatives: number of tuples per point of the largest view, in order of decreasing probability.
        one_to_one: return a polymatching in which every point is in exactly one tuple. The rounded coupling and a
            greedy matching are improved by reassigning one view at a time until the total cost stops decreasing, and
            the better result is returned. Some tuples then have no row of a smaller view. Probabilities are estimated
            from the distribution of similarities within and between the tuples, instead of from P; see
            `m3g.polymatching.posterior`.
        allow_unmatched: minimum membership probability; True means 0.5, and False means no minimum. Points below the
            minimum are removed from their tuples and remain unmatched unless they fit another tuple. A minimum implies
            `one_to_one`.
        known: (r, k) row numbers of r objects with known correspondence, -1 for a view without a row. The objects must
            be a random sample of all objects, including those with a single row. The membership probabilities of the
            tuples with several rows are calibrated on them, which changes the tuples only if `allow_unmatched` is set.

    Returns:
        A `Matching`.

    Complexity: that of `m3g.solve`, plus one pass over the n^k tuples. Beyond 2^26 tuples, a local search by coordinate
    ascent replaces this pass, starting at the most probable partner of a point in every view, and `alternatives` must
    be 1. For a one-to-one matching, assignment problems of O(n³) replace this pass: k in each sweep over the views.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> objects = torch.randn(6, 8)
        >>> orders = [torch.randperm(6) for _ in range(3)]
        >>> matching = m3g.match([objects[order] + 0.1 * torch.randn(6, 8) for order in orders])
        >>> [order[matching.tuples[:, l]].tolist() for l, order in enumerate(orders)]  # the same objects in each
        [[2, 0, 1, 5, 3, 4], [2, 0, 1, 5, 3, 4], [2, 0, 1, 5, 3, 4]]
        >>> bool((matching.probabilities > 0.999).all())
        True

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """
    threshold = _threshold(allow_unmatched)
    one_to_one = _checks.flag("one_to_one", one_to_one) or threshold > 0
    alternatives, tol = _checks.positive_int("alternatives", alternatives), _checks.positive("tol", tol)
    parts = _validated_points(views, normalize=_checks.flag("normalize", normalize))
    k, sizes = len(parts), [len(part) for part in parts]
    anchor = sizes.index(max(sizes))
    order = _anchor_first(anchor, k)
    cost = reordered(as_cost(cost), order)
    if epsilon is None and temperature is None:
        epsilon = DEFAULT_EPSILON
    epsilon = Entropy(epsilon, temperature).epsilon_of(cost, k)
    problem = cost([parts[l] for l in order])
    if one_to_one and alternatives > 1:
        raise ValueError(f"alternatives must be 1 for a one-to-one matching, got {alternatives}.")
    if alternatives > 1 and problem.num_tuples > MAX_TUPLES:
        raise ValueError(
            f"alternatives must be 1 for more than {MAX_TUPLES} tuples, got {alternatives} for {problem.num_tuples}."
        )
    rows = None if known is None else _validated_known(known, sizes)
    if rows is not None and not one_to_one:
        raise ValueError("known must be None unless one_to_one or allow_unmatched is set, got row numbers.")
    per_point = problem.num_tuples // max(sizes)
    if alternatives > per_point:
        raise ValueError(
            f"alternatives must be at most {per_point}, the number of tuples per point, got {alternatives}."
        )
    with torch.no_grad():
        solution = solve(problem, epsilon=epsilon, solver=solver, tol=tol)
        if not solution.converged:
            warnings.warn(
                f"solver {solution.solver!r} did not converge with tol={tol:g} at epsilon={epsilon:g} "
                f"({solution.result.value}): the probabilities are approximate; use a larger epsilon.",
                ConvergenceWarning,
                stacklevel=2,
            )
        original_order = torch.tensor([order.index(l) for l in range(k)], device=problem.device)
        if one_to_one:
            tuples, membership = _one_to_one(
                solution, cost, [parts[l] for l in order], threshold, None if rows is None else rows[:, order]
            )
            probabilities = membership.nan_to_num(nan=1.0).amin(1)
            return Matching(tuples[:, original_order], probabilities, anchor, solution, membership[:, original_order])
        if problem.num_tuples <= MAX_TUPLES:
            tuples, mass = _most_probable_tuples(solution, alternatives)
        else:
            tuples, mass = _locally_optimal_tuples(solution, cost, [parts[l] for l in order])
        anchor_mass = solution.marginal(0)[tuples[:, 0]]
    return Matching(tuples[:, original_order], (mass / anchor_mass).clamp(max=1.0), anchor, solution)


def _threshold(allow_unmatched: bool | float) -> float:
    """Return the probability below which a point is removed from its tuple; 0 if none is removed."""
    limit = _checks.plain(allow_unmatched)
    if isinstance(limit, bool):
        return 0.5 if limit else 0.0
    if not isinstance(limit, float) or not 0 < limit < 1:
        got = _checks.shown(allow_unmatched)
        raise ValueError(f"allow_unmatched must be True, False or a probability between 0 and 1, got {got}.")
    return limit


def _validated_known(known: Sequence[Sequence[int]] | Tensor, sizes: list[int]) -> Tensor:
    """Return the validated rows of known objects, (r, k)."""
    required = f"known must be an array of whole numbers of shape (r, {len(sizes)})"
    rows = _checks.real_tensor(known, required).cpu()
    if rows.ndim != 2 or rows.shape[1] != len(sizes) or rows.is_floating_point() or rows.dtype == torch.bool:
        raise ValueError(f"{required}, got {rows.dtype} of shape {_checks.shape_of(rows)}.")
    rows = rows.long()
    for l, size in enumerate(sizes):
        column = rows[:, l][rows[:, l] != NO_ROW]
        outside = column[(column < 0) | (column >= size)]
        if len(outside):
            raise ValueError(
                f"known must contain row numbers of view {l} from 0 to {size - 1}, or -1, got {int(outside[0])}."
            )
        if len(column.unique()) < len(column):
            raise ValueError(f"known must contain each row of view {l} at most once, got duplicates.")
    if not (rows != NO_ROW).any():
        raise ValueError(f"known must contain at least one row number, got {len(rows)} objects without one.")
    return rows


def _one_to_one(
    solution: Solution, cost: Cost, views: list[Tensor], threshold: float, known: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return a one-to-one matching, sorted by the anchor's rows if `threshold` > 0, and its memberships."""
    tuples = round_coupling(cost, views, [solution.pair_marginal(0, m) for m in range(1, len(views))])
    slope, shift = 1.0, 0.0
    if known is not None:
        slope, shift = fit_calibration(memberships(cost, views, tuples), tuples, known)
    if threshold:
        logit = (math.log(threshold / (1 - threshold)) - shift) / slope
        uncalibrated_threshold = float(torch.tensor(logit, dtype=torch.float64).sigmoid())  # does not overflow
        table = split(cost, views, tuples, threshold=uncalibrated_threshold).tolist()
        tuples = torch.tensor(sorted(table, key=lambda rows: [(row == NO_ROW, row) for row in rows]))
    membership = memberships(cost, views, tuples)
    if known is not None:
        has_partner = (tuples != NO_ROW).sum(1, keepdim=True) > 1
        membership = torch.where(has_partner, calibrate(membership, slope, shift), membership)
    return tuples.to(views[0].device), membership.to(views[0].device)


def _anchor_first(anchor: int, k: int) -> list[int]:
    return [anchor, *(l for l in range(k) if l != anchor)]


def _validated_points(views: Sequence[ArrayLike] | Tensor, *, normalize: bool) -> list[Tensor]:
    """Return k tensors (n_l, d) in float64, whose precision a small epsilon requires."""
    if isinstance(views, Iterable) and not isinstance(views, (Tensor, str, bytes)):
        views = [_as_tensor(view, l) for l, view in enumerate(views)]
    parts = _checks.view_sequence(views)  # type: ignore[arg-type]
    if parts[0].ndim != 2:
        raise ValueError(f"views must be k tensors (n, d), got {_checks.shape_of(parts[0])} in view 0.")
    parts = [part.detach().double() for part in parts]
    for l, part in enumerate(parts):
        _checks.finite_tensor(f"view {l}", part)
        if not normalize:
            continue
        zero = (part == 0).all(1).nonzero()
        if len(zero):
            raise ValueError(
                f"view {l} must be non-zero vectors with normalize=True, got a zero vector in row {int(zero[0])}."
            )
        parts[l] = unit_or_zero(part)
    return parts


def _as_tensor(view: ArrayLike, l: int) -> Tensor:
    """Return view l as a floating point tensor; raise if it is not an array of numbers."""
    tensor = _checks.real_tensor(view, "views must be arrays of numbers (n, d)", f" in view {l}")
    return tensor if tensor.is_floating_point() else _checks.readable(f"views[{l}]", tensor).double()


def _most_probable_tuples(solution: Solution, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` tuples of largest mass of every point of view 0, (n_0 · count, k), and their masses."""
    sizes = solution.problem.sizes
    tuples, mass = [], []
    for rows, slab in solution.coupling_form.rows():
        top = slab[0].flatten(1).topk(count, dim=1)
        anchor_rows = torch.arange(rows.start, rows.stop, device=slab.device).repeat_interleave(count)
        tuples.append(torch.stack([anchor_rows, *torch.unravel_index(top.indices.flatten(), sizes[1:])], dim=1))
        mass.append(top.values.flatten())
    return torch.cat(tuples), torch.cat(mass)


def _locally_optimal_tuples(solution: Solution, cost: Cost, views: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return a tuple (n_0, k) of locally maximal mass for every point of view 0, and the masses, by coordinate ascent.

    P(t) = exp((Σ_l f_l[t_l] - C(t)) / eps) for a tuple t and the potentials f_l. The best of all tuples that differ
    only in view m therefore follows from f_m and n_m costs.
    """
    k, n = len(views), len(views[0])
    potentials = solution.potentials
    columns = [torch.arange(n, device=views[0].device)]
    columns += [solution.pair_marginal(0, m).argmax(1) for m in range(1, k)]
    log_mass = torch.full((n,), -torch.inf, dtype=views[0].dtype, device=views[0].device)
    for _ in range(MAX_SWEEPS):
        changed = False
        for m in range(1, k):
            points = [view[column].unsqueeze(1) for view, column in zip(views, columns)]
            points[m] = views[m].expand(n, *views[m].shape)
            fixed = torch.stack([potentials[l][columns[l]] for l in range(k) if l != m]).sum(0)
            costs = cost(points).dense().reshape(n, -1)
            best = ((fixed.unsqueeze(1) + potentials[m] - costs) / solution.epsilon).max(1)
            changed |= bool((best.indices != columns[m]).any())
            columns[m], log_mass = best.indices, best.values
        if not changed:
            break
    return torch.stack(columns, 1), log_mass.exp()
