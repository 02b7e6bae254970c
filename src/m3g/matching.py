"""The best polymatching of k sets whose rows are in no common order: which points belong together?"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Cost, CostLike, as_cost
from m3g.costs.grounds import unit_or_zero
from m3g.losses.convergence import ConvergenceWarning
from m3g.polymatching import NO_ROW, memberships, round_coupling, split
from m3g.solvers import Solution, Solver, solve

# Up to so many tuples all of them are looked at; beyond, the best of every point is searched for.
MOST_TUPLES = 2**26
MOST_SWEEPS = 100


@dataclass(frozen=True)
class Matching:
    """Tuples of points that belong together, and how sure the polymatching P is of them.

    Attributes:
        tuples: (s, k), entry l is a row of view l. Every point of the anchor has `alternatives` tuples, one after the
            other, the most probable first. One-to-one, every row of every view is in exactly one tuple, and an entry is
            -1 where the tuple has no row of that view.
        probabilities: (s,), P(tuple) / P(its point of the anchor): the probability, under P, that this point's partners
            are exactly those of the tuple. Over all tuples of a point they add up to 1. One-to-one, the least of
            `memberships` in the tuple.
        anchor: the view whose every point has a tuple: the first of the largest views. Views of one size each could be
            it, with the same tuples wherever the matching is sure.
        solution: the solve behind it, on the views in the order anchor first, then the others.
        memberships: (s, k), one-to-one only: the probability that a row belongs to the other rows of its tuple, NaN for
            no row. A row alone in its tuple has the probability that it belongs to no other tuple.
    """

    tuples: Tensor
    probabilities: Tensor
    anchor: int
    solution: Solution
    memberships: Tensor | None = None

    def unused(self, l: int) -> int:
        """How many points of view l are in no tuple; one-to-one, how many are alone in theirs."""
        k = self.tuples.shape[1]
        l = _checks.view_index("l", l, k)
        order = _anchor_first(self.anchor, k)
        if self.memberships is not None:
            present = self.tuples != NO_ROW
            return int((present[:, l] & (present.sum(1) == 1)).sum())
        return self.solution.problem.sizes[order.index(l)] - len(self.tuples[:, l].unique())


def match(
    views: Sequence[Any] | Tensor,
    *,
    epsilon: float = 0.01,
    cost: CostLike = "cv",
    solver: str | Solver | None = "auto",
    tol: float = 1e-4,
    normalize: bool = True,
    alternatives: int = 1,
    one_to_one: bool = False,
    allow_unmatched: bool | float = False,
) -> Matching:
    """Match k sets of points whose rows are in no common order and whose sizes may differ.

    Entropic multi-marginal optimal transport spreads the mass 1 of all tuples so that the n_l points of view l get
    1 / n_l each, at the least cost. With a small epsilon and views of one size that is a polymatching: every point in
    one tuple. A point of a smaller view is in several tuples, n_anchor / n_l on average.

    Args:
        views: k arrays or tensors (n_l, d) in one space.
        epsilon: strength of the entropy. The smaller, the surer the tuples; as it goes to 0 they become, for two views
            of one size, the assignment of least cost.
        cost, solver, tol: as in `m3g.matching_gap`.
        normalize: scale every vector to unit length first.
        alternatives: tuples per point of the anchor, in the order of their probabilities.
        one_to_one: round the coupling to a polymatching in which every point is in exactly one tuple, and lower its
            total cost by assigning one view anew given the others until it no longer falls. A view of fewer points is
            missing in some tuples. Probabilities are then estimated from the distribution of the similarities, not
            taken from P, and do not depend on epsilon; see `m3g.polymatching.posterior`.
        allow_unmatched: also one-to-one, and points whose membership has a probability below this number are taken out
            of their tuples; they are alone in a tuple unless they fit another one. True is 0.5.

    Up to 2^26 tuples all are compared. Beyond, the tuple of a point is found by exchanging one partner at a time for
    the best until none changes, from its best partner in every view on, and `alternatives` must be 1.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> objects = torch.randn(6, 8)
        >>> orders = [torch.randperm(6) for _ in range(3)]
        >>> found = m3g.match([objects[order] + 0.1 * torch.randn(6, 8) for order in orders])
        >>> [order[found.tuples[:, l]].tolist() for l, order in enumerate(orders)]  # the same objects in each
        [[2, 0, 1, 5, 3, 4], [2, 0, 1, 5, 3, 4], [2, 0, 1, 5, 3, 4]]
        >>> bool((found.probabilities > 0.999).all())
        True
    """
    parts = _points(views, normalize=normalize)
    k, sizes = len(parts), [len(part) for part in parts]
    anchor = sizes.index(max(sizes))
    order = _anchor_first(anchor, k)
    cost = as_cost(cost)
    problem = cost([parts[l] for l in order])
    _checks.positive_int("alternatives", alternatives)
    least = _least(allow_unmatched)
    one_to_one = one_to_one or least > 0
    if one_to_one and alternatives > 1:
        raise ValueError(f"alternatives must be 1 for a one-to-one matching, got {alternatives}.")
    if alternatives > 1 and problem.num_tuples > MOST_TUPLES:
        raise ValueError(
            f"alternatives must be 1 for more than {MOST_TUPLES} tuples, got {alternatives} and {problem.num_tuples}."
        )
    most = problem.num_tuples // max(sizes)
    if alternatives > most:
        raise ValueError(f"alternatives must be at most the {most} tuples of a point, got {alternatives}.")
    with torch.no_grad():
        solution = solve(problem, epsilon=epsilon, solver=solver, tol=tol)
        if not solution.converged:
            warnings.warn(
                f"solver {solution.solver!r} stopped before its marginals were within tol={tol:g} at "
                f"epsilon={epsilon:g}: the probabilities are approximate; use a larger epsilon.",
                ConvergenceWarning,
                stacklevel=2,
            )
        back = torch.tensor([order.index(l) for l in range(k)], device=problem.device)
        if one_to_one:
            tuples, sure = _rounded(solution, cost, [parts[l] for l in order], least)
            return Matching(tuples[:, back], sure.nan_to_num(nan=1.0).amin(1), anchor, solution, sure[:, back])
        if problem.num_tuples <= MOST_TUPLES:
            tuples, mass = _most_probable(solution, alternatives)
        else:
            tuples, mass = _ascend(solution, cost, [parts[l] for l in order])
        given = solution.marginal(0)[tuples[:, 0]]
    return Matching(tuples[:, back], (mass / given).clamp(max=1.0), anchor, solution)


def _least(allow_unmatched: bool | float) -> float:
    """The probability below which a point is taken out of its tuple, 0 for none."""
    if isinstance(allow_unmatched, bool):
        return 0.5 if allow_unmatched else 0.0
    if not isinstance(allow_unmatched, (int, float)) or not 0 < allow_unmatched < 1:
        raise ValueError(f"allow_unmatched must be a bool or a probability between 0 and 1, got {allow_unmatched!r}.")
    return float(allow_unmatched)


def _rounded(solution: Solution, cost: Cost, views: list[Tensor], least: float) -> tuple[Tensor, Tensor]:
    """A one-to-one matching, the anchor's points first and in their order, and the probability of each membership."""
    tuples = round_coupling(cost, views, [solution.pair_marginal(0, m) for m in range(1, len(views))])
    if least:
        found = split(cost, views, tuples, least=least).tolist()
        tuples = torch.tensor(sorted(found, key=lambda rows: [(row == NO_ROW, row) for row in rows]))
    sure = memberships(cost, views, tuples)
    return tuples.to(views[0].device), sure.to(views[0].device)


def _anchor_first(anchor: int, k: int) -> list[int]:
    return [anchor, *(l for l in range(k) if l != anchor)]


def _points(views: Sequence[Any] | Tensor, *, normalize: bool) -> list[Tensor]:
    """k tensors (n_l, d) in float64: a sharp matching asks for many digits, and problems are small."""
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


def _as_tensor(view: Any, l: int) -> Tensor:
    try:
        tensor = view if isinstance(view, Tensor) else torch.as_tensor(view)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"views must be arrays of numbers (n, d), got {_checks.described(view)} in view {l}."
        ) from None
    return tensor if tensor.is_floating_point() else _checks.readable(f"views[{l}]", tensor).double()


def _most_probable(solution: Solution, count: int) -> tuple[Tensor, Tensor]:
    """The `count` heaviest tuples of every point of view 0, (n_0 · count, k), and their mass."""
    sizes = solution.problem.sizes
    tuples, mass = [], []
    for rows, slab in solution.coupling_form.rows():
        top = slab[0].flatten(1).topk(count, dim=1)
        here = torch.arange(rows.start, rows.stop, device=slab.device).repeat_interleave(count)
        tuples.append(torch.stack([here, *torch.unravel_index(top.indices.flatten(), sizes[1:])], dim=1))
        mass.append(top.values.flatten())
    return torch.cat(tuples), torch.cat(mass)


def _ascend(solution: Solution, cost: Cost, views: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A tuple of every point of view 0 that exchanging one partner does not make heavier, and its mass.

    P(t) = exp((Σ_l f_l[t_l] - C(t)) / eps), so of all tuples that differ in view m alone, the heaviest is found from
    f_m and the costs of n_m tuples.
    """
    k, n = len(views), len(views[0])
    potentials = solution.potentials
    columns = [torch.arange(n, device=views[0].device)]
    columns += [solution.pair_marginal(0, m).argmax(1) for m in range(1, k)]
    log_mass = torch.full((n,), -torch.inf, dtype=views[0].dtype, device=views[0].device)
    for _ in range(MOST_SWEEPS):
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
