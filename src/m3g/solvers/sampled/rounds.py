"""Rounds of a sampled solve: a sampled kernel replaces the true one, and its dual is solved.

1. Select relevant tuples: true and random ones at first, then tuples drawn from the last coupling, and others found by
   Gibbs steps under its potentials (gibbs_search.py).
2. Build a kernel of products around them (product_kernel.py) for the circular variance; if that is not accurate enough,
   and for other costs, a weighted list of tuples (tuple_kernel.py) drawn near them (proposals.py).
3. Take Newton steps on the dual of the sampled kernel (ascent.py); repeat from 1 for the next round.
4. Estimate the error from the two halves of the samples (error.py), and the mass from a validation sample
   (cross_check.py). If they disagree, more rounds follow.

Sharp problems are first solved at larger epsilons, whose potentials indicate where the mass is at the next one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.costs.coupling import all_equal
from m3g.solvers.sampled.ascent import Ascended, ListPoint, ascend_on_list
from m3g.solvers.sampled.cross_check import FRESH_PART, Check, fresh_check
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import SamplingError, sampling_error
from m3g.solvers.sampled.gibbs_search import moved, powers_for
from m3g.solvers.sampled.interfaces import Build, Listed
from m3g.solvers.sampled.log_kernel import LogKernel, log_kernel_of
from m3g.solvers.sampled.product_kernel import SHARP, product_list
from m3g.solvers.sampled.proposals import anchors_of, true_tuples, tuple_list
from m3g.solvers.sampled.tuple_kernel import full_list
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.processes import processes, read

# Draws per component, divided equally between the two halves of the samples.
DRAWS_EACH = 4
# Marginal error at which all rounds except the last stop.
LOOSE = 0.05
# Error (`SolvedList.worst`) up to which a kernel of products is accepted without trying a list of tuples.
FINE = 0.03
# Error above which the coupling of the products is a poor proposal for the list. The list then has its own first round,
# which reduces the error of the gradient by a tenth and takes a quarter more time.
POOR = 0.15
# Range of the exponents within a view beyond which larger epsilons are solved first, decreasing by a factor of four.
STEEP = 30.0
EPSILON_RATIO = 4.0
# Beyond this number of stages, tuples with mass may be unreachable for the chains, and no sample would reveal it. The
# limit is one less for a cost with local maxima.
MOST_STAGES = 2
# Minimum number of chains of the check; a cost with local maxima needs more, because 64 chains missed some of them.
FEWEST_CHAINS = 64
FEWEST_CHAINS_OF_MAXIMA = 256
# Maximum number of steps after tol is reached, if nothing is sampled.
MOST_FURTHER = 4
# Maximum number of additional rounds if the check contradicts the error estimate.
MOST_REPEATS = 3


@dataclass(frozen=True)
class SolvedList:
    """A solved list and its error.

    Attributes:
        build: how the list was built; None if nothing was sampled.
        contradicted: (b,) the largest significant discrepancy of an earlier list with its validation sample; None
            before the first.
    """

    build: Build | None
    listed: Listed
    point: ListPoint
    error: SamplingError
    check: Check | None = None
    contradicted: Tensor | None = None

    def relative_gradient_error(self) -> float:
        return read(self.error.gradient)

    def worst(self) -> float:
        """Return one number for comparisons: the first-order error plus an indicator of higher-order errors."""
        return read(self.error.gradient + self.error.bias)

    def doubtful(self) -> bool:
        return self.check is not None and self.check.doubtful(self.error)

    def contradictions(self) -> Tensor | None:
        """Return the largest significant discrepancy so far, including this list."""
        if self.check is None:
            return self.contradicted
        here = self.check.contradiction(self.error)
        return here if self.contradicted is None else torch.maximum(here, self.contradicted)


class Rounds:
    """One solve at the given rank; `num_steps` counts its evaluations."""

    def __init__(
        self, problem: Problem, target: Tensor, draws: Draws, *, epsilon: float, tol: float, rank: int, max_steps: int
    ):
        self.problem, self.target, self.draws = problem, target, draws
        self.epsilon, self.tol, self.rank, self.max_steps = epsilon, tol, rank, max_steps
        self.log_kernel = log_kernel_of(problem, epsilon)
        # The true matching, which is always listed, has these marginals if sizes and weights are equal.
        sizes = problem.sizes
        plain = all_equal(sizes) and bool((target == target[:, :1]).all())
        self.anchors = anchors_of(target, sizes)[:, : 0 if plain else None]
        self.num_steps = 0
        # The larger epsilons to solve first; the search for tuples takes as many additional sweeps.
        self.first_epsilons = self._epsilons()
        self.powers = powers_for(len(self.first_epsilons), EPSILON_RATIO)

    def solve(self, log_scaling: Tensor, *, form: str, rounds: int) -> SolvedList:
        if self.lists_all(form):
            return self._full(log_scaling)
        solved = self._sampled(log_scaling, form, rounds)
        for _ in range(MOST_REPEATS):
            if not solved.doubtful():
                break
            solved = self.refine(solved, self.rank)
        return solved

    @property
    def too_sharp(self) -> bool:
        """Return whether exponents within a view differ by more than STEEP · EPSILON_RATIO^MOST_STAGES."""
        return len(self.first_epsilons) > MOST_STAGES - self.log_kernel.has_maxima

    def lists_all(self, form: str) -> bool:
        """Return whether enumerating all tuples takes no more entries than a sampled list; always for two views."""
        few = self.problem.num_tuples <= self.rank * sum(self.problem.sizes)
        return self.problem.k == 2 or (form == "auto" and few)

    def _epsilons(self) -> list[float]:
        """Return the larger epsilons to solve first, largest first, from the range of exponents of random tuples."""
        tuples = self.draws.tuples(self.problem.sizes, self.target.shape[0], 64)
        ranges = []
        for l in range(self.problem.k):
            logits = self.log_kernel.conditional(l, tuples)
            ranges.append((logits.amax(2) - logits.amin(2)).mean(1).max())
        steep = read(torch.stack(ranges)) / STEEP
        stages = math.ceil(math.log(steep) / math.log(EPSILON_RATIO)) if steep > 1 else 0
        return [self.epsilon * EPSILON_RATIO**stage for stage in range(stages, 0, -1)]

    def _full(self, log_scaling: Tensor) -> SolvedList:
        for epsilon in self.first_epsilons:
            warm = self._ascended(full_list(log_kernel_of(self.problem, epsilon)), log_scaling, LOOSE)
            log_scaling = warm.point.log_scaling * EPSILON_RATIO
        listed = full_list(self.log_kernel)
        # If nothing is sampled, only the error due to tol remains, and a few more steps remove it.
        last = self._ascended(listed, log_scaling, self.tol, further=MOST_FURTHER)
        nothing = torch.zeros_like(last.possible_gain)
        # In a shared solve, gradients are computed while all processes still take part.
        gradients = None if processes() is None else self.problem.detached().gradient(last.point.coupling)
        return SolvedList(None, listed, last.point, SamplingError(last.possible_gain, nothing, nothing, gradients))

    def _sampled(self, log_scaling: Tensor, form: str, rounds: int) -> SolvedList:
        last: ListPoint | None = None
        for epsilon in self.first_epsilons:
            warm = log_kernel_of(self.problem, epsilon)
            centres = self._centres(warm, self.rank // 2, last, log_scaling)
            last = self._solved(tuple_list, warm, centres, log_scaling, LOOSE)[1].point
            log_scaling = last.log_scaling * EPSILON_RATIO
        build = product_list if self._takes_products(form) else tuple_list
        for turn in range(rounds):
            final = turn == rounds - 1
            centres = self._centres(self.log_kernel, self.rank if final else self.rank // 2, last, log_scaling)
            listed, end = self._solved(build, self.log_kernel, centres, log_scaling, self.tol if final else LOOSE)
            last, log_scaling = end.point, end.point.log_scaling
        assert last is not None
        solved = self._judged(build, listed, end)
        if build is tuple_list or form == "products" or solved.worst() <= FINE:
            return self._checked(solved, self.rank)
        if solved.worst() > POOR:
            centres = self._centres(self.log_kernel, self.rank // 2, last, log_scaling)
            last = self._solved(tuple_list, self.log_kernel, centres, log_scaling, LOOSE)[1].point
        centres = self._centres(self.log_kernel, self.rank, last, last.log_scaling)
        other = self._judged(
            tuple_list, *self._solved(tuple_list, self.log_kernel, centres, last.log_scaling, self.tol)
        )
        return self._checked(min(solved, other, key=SolvedList.worst), self.rank)

    def _takes_products(self, form: str) -> bool:
        if form == "tuples" or not self.log_kernel.has_products:
            return False
        return form == "products" or read(self.log_kernel.sharpness()) <= SHARP

    def refine(self, solved: SolvedList, rank: int) -> SolvedList:
        """Return a list of the same form, with the tuples of the check among its centres."""
        build = solved.build
        assert build is not None
        log_scaling = solved.point.log_scaling
        centres = self._centres(self.log_kernel, rank, solved.point, log_scaling)
        if solved.check is not None and solved.doubtful():
            centres = torch.cat([centres, solved.check.tuples], 1)
        again = self._judged(build, *self._solved(build, self.log_kernel, centres, log_scaling, self.tol))
        return replace(self._checked(again, rank), contradicted=solved.contradictions())

    def _judged(self, build: Build, listed: Listed, end: Ascended) -> SolvedList:
        error = sampling_error(listed, end.point, self.problem, DRAWS_EACH)
        # Add four times the error due to tol, whose estimate is rough, and too low if little is sampled. Also add the
        # rounding error of exponents of this size, which no sample reveals.
        value = error.value + 4 * end.possible_gain + torch.finfo(self.problem.dtype).eps * end.point.reach
        return SolvedList(build, listed, end.point, replace(error, value=value))

    def _checked(self, solved: SolvedList, rank: int) -> SolvedList:
        assert solved.build is not None
        fewest = FEWEST_CHAINS_OF_MAXIMA if self.log_kernel.has_maxima else FEWEST_CHAINS
        count = max(fewest, rank // (DRAWS_EACH * FRESH_PART))
        check = fresh_check(
            solved.build,
            solved.listed,
            self.log_kernel,
            solved.point,
            count,
            DRAWS_EACH,
            self.draws,
            self.anchors,
            self.powers,
        )
        return replace(solved, check=check)

    def _centres(self, log_kernel: LogKernel, rank: int, last: ListPoint | None, log_scaling: Tensor) -> Tensor:
        """Return half true, half random tuples at first; then a quarter true ones, the rest from the last coupling."""
        count, b = max(2, -(-rank // DRAWS_EACH)), self.target.shape[0]
        sizes = log_kernel.sizes
        if last is None:
            true = count // 2
            rest = self.draws.tuples(sizes, b, count - true)
        else:
            true = count // 4
            searched = count // 8
            drawn = last.coupling.draw(count - true - searched, self.draws)
            starts = self.draws.tuples(sizes, b, searched)
            rest = torch.cat([drawn, moved(log_kernel, starts, log_scaling, self.draws, self.powers)], 1)
        return torch.cat([true_tuples(sizes, true, b, self.draws), rest], 1)

    def _solved(
        self, build: Build, log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, tol: float
    ) -> tuple[Listed, Ascended]:
        """Return a list around the centres, and the result of the ascent on its dual."""
        k, rows = len(log_kernel.sizes), centres.shape[1] * DRAWS_EACH + self.anchors.shape[1]
        row_bytes = 8 * (log_kernel.features + 2 * k**2 + 10 * k)
        need = float(self.target.shape[0] * rows * row_bytes)
        # Stored in any case: the samples, and vectors with one entry per sample.
        _checks.fits(f"solver='sampled' with {rows} rows", need, memory_limit(self.target.device), "use a smaller rank")
        listed = build(log_kernel, centres, log_scaling, DRAWS_EACH, self.draws, self.anchors)
        return listed, self._ascended(listed, log_scaling, tol)

    def _ascended(self, listed: Listed, log_scaling: Tensor, tol: float, *, further: int = 0) -> Ascended:
        ascended = ascend_on_list(
            listed,
            self.target,
            log_scaling,
            tol=tol,
            max_steps=self.max_steps,
            rounding=torch.finfo(self.problem.dtype).eps,
            further=further,
        )
        self.num_steps += ascended.num_steps
        return ascended
