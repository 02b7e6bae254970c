"""A solver linear in the number of views: a sampled kernel in place of the true one, and the dual solved on that.

1. Tuples that matter: true and random ones at first, then tuples drawn from the last coupling.
2. A kernel of products around them (products.py), for the circular variance; where that is not accurate enough, and
   for other costs, a weighted list of tuples (tuples.py) drawn near them (proposals.py).
3. Newton steps on the dual of the sampled kernel (list_ascent.py); back to 1 for the next round.
4. What the two halves of the samples say about the error (sampling_error.py).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import CircularVarianceProblem, Problem
from m3g.solvers.sampled.ascent import ListAscent
from m3g.solvers.sampled.error import SamplingError, sampling_error
from m3g.solvers.sampled.log_kernel import LogKernel, ResultantKernel, log_kernel_of
from m3g.solvers.sampled.products import ProductList, draw_fields
from m3g.solvers.sampled.proposals import Mixture, random_tuples, true_tuples
from m3g.solvers.sampled.tuples import TupleList
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.precision import full_precision
from m3g.solvers.shared.solver import Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution

# Draws of one component; half of them go to each half of the samples.
DRAWS_EACH = 4
# Marginal error at which the rounds before the last stop.
LOOSE = 0.05
# Squared distance of tuples that differ in one view, in standard deviations of a product (`sharpness`), past which
# products no longer overlap: tuples that were missed then leave no trace in the samples, nor in the error.
SHARP = 10.0
# Error (`_Found.worst`) up to which a kernel of products is good enough, and no list of tuples is tried.
FINE = 0.03
# Past this its coupling is a poor guess to draw the list from, which then gets a round of its own first: a tenth less
# error in the gradient for a quarter more time.
POOR = 0.15
# Past these an answer is not to be trusted: relative standard error of the gradient; the bias found in the value, in
# units of epsilon, because where it is large the potentials fit the sample and not the problem, and first-order errors
# tell nothing; tuples per point, because fewer leave points with nothing but the true tuples around them.
UNTRUSTED = 0.3
UNTRUSTED_BIAS = 0.06
TUPLES_PER_POINT = 4


class SamplingWarning(UserWarning):
    """A sampled solution whose own estimate of its error is too large to trust it."""


@dataclass(frozen=True)
class Sampled(Solver):
    """Linear in k and in n at a fixed rank; an estimate, which says how good it is.

    Works for the circular variance and the circular standard deviation in O(k n d rank), and for every other cost that
    is a sum over pairs of views in O(k² n rank). Tables of rank · n numbers per view are kept where they fit into the
    memory limit, else made anew, some rows at a time, in every pass over them: slower, and bounded in memory.

    Args:
        rank: samples drawn in the last round, half as many in those before.
        rounds: times the samples are drawn, the later ones around the coupling found before.
        form: of the kernel. "products" (circular variance only) is best where couplings are spread out, "tuples" where
            they are sharp; "auto" takes tuples where products of the views no longer overlap, else products, and
            tries tuples too where products call their own error large.
        rtol: relative standard error of the gradient to reach, by a rank up to `max_rank`, with a warning where that
            is too low; None keeps `rank`.
        max_rank: the budget of `rtol`.
        seed: the same draws in every solve. None takes fresh ones from `generator`, or torch's own generator.
        generator: a `torch.Generator` on the device of the views.
        max_steps: Newton steps of a round before it gives up.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(8, 1, 32) + torch.randn(64, 32), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, solver=m3g.Sampled(rank=1024, seed=0))
        >>> solution.converged, bool(solution.standard_error < 0.01)
        (True, True)
    """

    rank: int = 4096
    rounds: int = 2
    form: str = "auto"
    rtol: float | None = None
    max_rank: int = 65536
    seed: int | None = None
    generator: torch.Generator | None = None
    max_steps: int = 60

    name = "sampled"
    exact = False

    def __post_init__(self) -> None:
        for field in ("rank", "rounds", "max_rank", "max_steps"):
            _checks.positive_int(field, getattr(self, field))
        _checks.one_of("form", self.form, ("auto", "products", "tuples"))
        if self.rtol is not None:
            _checks.positive("rtol", self.rtol)
        if self.seed is not None:
            _checks.seed("seed", self.seed)
        if not isinstance(self.generator, (torch.Generator, type(None))):
            raise ValueError(f"generator must be a torch.Generator or None, got {type(self.generator).__name__}.")
        if self.seed is not None and self.generator is not None:
            raise ValueError("seed must be None where a generator is given, got both.")

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Sampled:
        return self if self.seed is not None else replace(self, seed=draw(self.generator), generator=None)

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if self.form == "products" and not isinstance(problem, CircularVarianceProblem):
            raise ValueError(f"form must be 'auto' or 'tuples' for a {type(problem).__name__}, got 'products'.")
        with full_precision(problem.device):
            log_kernel = log_kernel_of(problem, epsilon)
            target, log_target = concatenated_weights(problem, weights)
            run = _Run(self, problem, log_kernel, target)
            found, rank = run.solve(log_target, tol), self.rank
            while self.rtol is not None and found.relative_gradient_error() > self.rtol and rank < self.max_rank:
                # At least half as many again: where the last estimate was too low, this must not creep.
                growth = max(1.5, (found.relative_gradient_error() / self.rtol) ** 2)
                rank = math.ceil(min(self.max_rank, rank * growth))
                found = run.refine(found, rank, tol)
            self._warn(found)
            return run.solution(found, epsilon, tol)

    def _warn(self, found: _Found) -> None:
        # The text has no figures that change from step to step: Python's default filter then shows it once.
        reasons = []
        if not found.relative_gradient_error() <= UNTRUSTED:
            reasons.append(f"the relative standard error of its gradient is past {UNTRUSTED:g}")
        elif self.rtol is not None and found.relative_gradient_error() > self.rtol:
            reasons.append(
                f"the relative standard error of its gradient is past rtol={self.rtol:g} at the highest rank"
            )
        if not float(found.error.bias.max()) <= UNTRUSTED_BIAS:
            reasons.append(f"its value is biased by more than {UNTRUSTED_BIAS:g} epsilon")
        listed = found.ascent.listed
        if isinstance(listed, ProductList) and not listed.log_kernel.sharpness() <= SHARP:
            reasons.append("form='products' does not reach between tuples at so small an epsilon")
        if isinstance(listed, TupleList) and listed.k > 2 and listed.num_samples < TUPLES_PER_POINT * max(listed.sizes):
            reasons.append(f"it has {listed.num_samples} tuples for {max(listed.sizes)} points")
        if reasons:
            warnings.warn(
                f"solver 'sampled' does not trust its answer: {', and '.join(reasons)}; "
                "use a higher rank or a larger epsilon.",
                SamplingWarning,
                stacklevel=4,
            )


@dataclass
class _Found:
    """A list solved, and how good it is."""

    ascent: ListAscent
    error: SamplingError

    def relative_gradient_error(self) -> float:
        return float(self.error.gradient.max())

    def worst(self) -> float:
        """One number to choose by: errors of first order, and the sign that they are not all."""
        return float((self.error.gradient + self.error.bias).max())


class _Run:
    """The rounds of one solve."""

    def __init__(self, settings: Sampled, problem: Problem, log_kernel: LogKernel, target: Tensor):
        self.settings = settings
        self.problem = problem
        self.log_kernel = log_kernel
        self.target = target
        self.generator = settings.generator
        if settings.seed is not None:
            self.generator = torch.Generator(device=problem.device).manual_seed(settings.seed)
        self.num_steps = 0

    def solve(self, log_scaling: Tensor, tol: float) -> _Found:
        rank, rounds = self.settings.rank, self.settings.rounds
        products = self.takes_products()
        draw = self.products if products else self.tuples
        ascent = None
        for turn in range(rounds):
            last = turn == rounds - 1
            ascent = draw(rank if last else rank // 2, log_scaling, ascent, tol if last else LOOSE)
            log_scaling = ascent.log_scaling
        assert ascent is not None
        found = self.judged(ascent)
        if not products or self.settings.form == "products" or found.worst() <= FINE:
            return found
        if found.worst() > POOR:
            ascent = self.tuples(rank // 2, log_scaling, ascent, LOOSE)
            log_scaling = ascent.log_scaling
        return min(found, self.judged(self.tuples(rank, log_scaling, ascent, tol)), key=_Found.worst)

    def takes_products(self) -> bool:
        form, log_kernel = self.settings.form, self.log_kernel
        if self.problem.k == 2 or form == "tuples" or not isinstance(log_kernel, ResultantKernel):
            return False
        return form == "products" or log_kernel.sharpness() <= SHARP

    def refine(self, found: _Found, rank: int, tol: float) -> _Found:
        """The same form of list once more, longer."""
        draw = self.products if isinstance(found.ascent.listed, ProductList) else self.tuples
        return self.judged(draw(rank, found.ascent.log_scaling, found.ascent, tol))

    def judged(self, ascent: ListAscent) -> _Found:
        return _Found(ascent, sampling_error(ascent, self.problem, DRAWS_EACH))

    def centres(self, count: int, last: ListAscent | None) -> Tensor:
        """Half true, half random tuples at first; then a quarter true ones, the others from the last coupling."""
        if last is None:
            true = count // 2
            rest = random_tuples(self.log_kernel.sizes, count - true, **self._where())
        else:
            true = count // 4
            rest = last.coupling.draw(count - true, self.generator)
        return torch.cat([true_tuples(self.log_kernel.sizes, true, **self._where()), rest], 1)

    def _where(self) -> dict[str, Any]:
        return {"b": self.target.shape[0], "generator": self.generator, "device": self.target.device}

    def products(self, rank: int, log_scaling: Tensor, last: ListAscent | None, tol: float) -> ListAscent:
        """A kernel of products around the last coupling, solved."""
        assert isinstance(self.log_kernel, ResultantKernel)
        self._check(rank, 8 * (self.log_kernel.features + len(self.log_kernel.sizes)))
        centres = self.centres(max(1, -(-rank // DRAWS_EACH)), last)
        fields, log_weights = draw_fields(self.log_kernel, centres, DRAWS_EACH, self.generator)
        return self._climb(ProductList(self.log_kernel, fields, log_weights), log_scaling, tol)

    def tuples(self, rank: int, log_scaling: Tensor, last: ListAscent | None, tol: float) -> ListAscent:
        """A list of tuples around the last coupling, solved."""
        k = len(self.log_kernel.sizes)
        self._check(rank + max(self.log_kernel.sizes), 8 * (2 * k * k + 10 * k))
        centres = self.centres(max(1, -(-rank // DRAWS_EACH)), last)
        mixture = Mixture(self.log_kernel, centres, log_scaling)
        tuples = mixture.draw(DRAWS_EACH, self.generator)
        log_counts = mixture.log_density(tuples) + math.log(tuples.shape[1])
        return self._climb(TupleList(self.log_kernel, tuples, log_counts), log_scaling, tol)

    def _check(self, num_rows: int, row_bytes: int) -> None:
        """What is kept whatever the size of the views: the samples themselves, and vectors with one entry for each."""
        need = float(self.target.shape[0] * num_rows * row_bytes)
        _checks.fits(
            f"solver='sampled' with {num_rows} rows", need, memory_limit(self.target.device), "use a smaller rank"
        )

    def _climb(self, listed: TupleList | ProductList, log_scaling: Tensor, tol: float) -> ListAscent:
        ascent = ListAscent(listed, self.target, log_scaling)
        ascent.run(tol, self.settings.max_steps)
        self.num_steps += ascent.num_steps
        return ascent

    def solution(self, found: _Found, epsilon: float, tol: float) -> Solution:
        problem, ascent, error = self.problem, found.ascent, found.error
        potentials = (ascent.log_scaling + self.log_kernel.shift) * epsilon
        value = ((potentials - epsilon / problem.k) * self.target).sum(1) - epsilon * error.bias
        dtype = problem.dtype
        return Solution(
            problem=problem,
            epsilon=epsilon,
            value=value.to(dtype).view(problem.batch),
            flat_potentials=potentials,
            error=ascent.error.to(dtype).view(problem.batch),
            num_steps=self.num_steps,
            tol=tol,
            solver=Sampled.name,
            coupling_form=ascent.coupling,
            standard_error=(epsilon * error.value).to(dtype).view(problem.batch),
            relative_gradient_error=error.gradient.to(dtype).view(problem.batch),
        )
