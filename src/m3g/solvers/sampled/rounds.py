"""Rounds of a sampled solve: sample the kernel, solve the dual of the sampled kernel, and sample around its solution.

Each round has three steps:

1. Select centres: tuples that are likely to have a large mass. In the first round, they are true and random tuples;
   later, they are true tuples, draws from the last coupling, and end points of Gibbs chains at its potentials
   (gibbs_search.py).
2. Draw a kernel around the centres: products (product_kernel.py) for the circular variance, or a list of tuples
   (proposals.py, tuple_kernel.py) for other costs, if products are not accurate enough, and with form="tuples".
3. Take Newton steps on the dual of this kernel (ascent.py).

After the last round, the error is estimated from two halves of the samples (error.py) and compared with an independent
validation sample (cross_check.py). If the validation sample contradicts the estimate, more rounds follow.

If the exponents have a large range, the problem is first solved at larger epsilons, each of which provides the initial
potentials for the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.costs.coupling import all_equal
from m3g.solvers.sampled.ascent import AscentResult, SampledPoint, ascend_dual
from m3g.solvers.sampled.cross_check import VALIDATION_RATIO, CrossCheck, cross_check
from m3g.solvers.sampled.draws import Draws
from m3g.solvers.sampled.error import SamplingError, sampling_error
from m3g.solvers.sampled.gibbs_search import gibbs_tuples, random_starts, sweep_powers
from m3g.solvers.sampled.interfaces import Build, SampledKernel
from m3g.solvers.sampled.log_kernel import LogKernel, log_kernel_of
from m3g.solvers.sampled.product_kernel import MAX_SHARPNESS, product_list
from m3g.solvers.sampled.proposals import anchors_of, true_tuples, tuple_list
from m3g.solvers.sampled.tuple_kernel import full_list
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.processes import processes, read

# Draws per centre, half of them for each of the two halves of the samples.
DRAWS_PER_CENTRE = 4
# Tolerance of all rounds except the last.
LOOSE_TOL = 0.05
# Error (`Estimate.total_error`) up to which products are accepted without trying a list of tuples.
ACCEPTED_ERROR = 0.03
# Error above which the coupling of the products is a poor source of centres for a list of tuples. A list of half the
# rank is then solved first and provides the centres, which reduces the error of the gradient by a tenth and requires a
# quarter more time.
POOR_PROPOSAL_ERROR = 0.15
# Range of the exponents within a view beyond which the problem is first solved at larger epsilons, and the ratio of
# successive epsilons.
MAX_EXPONENT_RANGE = 30.0
EPSILON_RATIO = 4.0
# Maximum number of larger epsilons for a trusted result, one fewer for a cost whose kernel has local maxima
# (`LogKernel.has_local_maxima`). Beyond it, Gibbs chains may not reach all tuples with mass, and a validation sample
# would not detect this.
MAX_STAGES = 2
# Minimum number of Gibbs chains of the cross-check. Costs with local maxima require more: 64 chains missed some maxima.
MIN_CHAINS = 64
MIN_CHAINS_LOCAL_MAXIMA = 256
# Maximum number of steps after `tol` is reached, if all tuples are enumerated.
MAX_FURTHER_STEPS = 4
# Maximum number of additional rounds if the validation sample contradicts the error estimate.
MAX_EXTRA_ROUNDS = 3


@dataclass(frozen=True)
class Estimate:
    """Solution of a sampled kernel with its error estimate.

    Attributes:
        build: the function that drew the kernel; None if all tuples are enumerated.
        kernel: the sampled kernel.
        point: the solution of its dual.
        error: the error estimate.
        check: the result of the validation sample; None if there is none.
        largest_discrepancy: (b,), the largest significant discrepancy between an earlier estimate of this solve and its
            validation sample, 0 if none was significant; None if there was no earlier validation sample.
    """

    build: Build | None
    kernel: SampledKernel
    point: SampledPoint
    error: SamplingError
    check: CrossCheck | None = None
    largest_discrepancy: Tensor | None = None

    def relative_gradient_error(self) -> float:
        return read(self.error.gradient)

    def total_error(self) -> float:
        """Return the measure by which estimates are compared: error of the gradient plus bias of the value."""
        return read(self.error.gradient + self.error.bias)

    def is_contradicted(self) -> bool:
        return self.check is not None and self.check.is_significant(self.error)

    def largest_discrepancy_so_far(self) -> Tensor | None:
        """Return the largest significant discrepancy of this and all earlier rounds: (b,)."""
        if self.check is None:
            return self.largest_discrepancy
        current = self.check.significant_discrepancy(self.error)
        return current if self.largest_discrepancy is None else torch.maximum(current, self.largest_discrepancy)


class Rounds:
    """State of one solve; `num_steps` counts the evaluations of the dual."""

    def __init__(
        self, problem: Problem, target: Tensor, draws: Draws, *, epsilon: float, tol: float, rank: int, max_steps: int
    ):
        self.problem, self.target, self.draws = problem, target, draws
        self.epsilon, self.tol, self.rank, self.max_steps = epsilon, tol, rank, max_steps
        self.log_kernel = log_kernel_of(problem, epsilon)
        # Anchors (tuple_kernel.py) are not required if sizes and weights are equal: the true matching, which every list
        # of tuples contains, then has the required marginals.
        sizes = problem.sizes
        uniform = all_equal(sizes) and bool((target == target[:, :1]).all())
        self.anchors = anchors_of(target, sizes)[:, : 0 if uniform else None]
        self.num_steps = 0
        self.warm_up_epsilons = self._warm_up_epsilons()
        self.powers = sweep_powers(len(self.warm_up_epsilons), EPSILON_RATIO, selected=self.log_kernel.has_local_maxima)

    def solve(self, log_scaling: Tensor, *, form: str, rounds: int) -> Estimate:
        """Solve from initial log scalings (b, N); `form` and `rounds` are those of `Sampled`."""
        if self.enumerates_all(form):
            return self._enumerated(log_scaling)
        estimate = self._sampled(log_scaling, form, rounds)
        for _ in range(MAX_EXTRA_ROUNDS):
            if not estimate.is_contradicted():
                break
            estimate = self.refine(estimate, self.rank)
        return estimate

    @property
    def too_sharp(self) -> bool:
        """Whether epsilon is so small that samples may miss tuples with mass."""
        return len(self.warm_up_epsilons) > MAX_STAGES - self.log_kernel.has_local_maxima

    def enumerates_all(self, form: str) -> bool:
        """Return whether all tuples are enumerated: for two views, or for few tuples with form="auto"."""
        few = self.problem.num_tuples <= self.rank * sum(self.problem.sizes)
        return self.problem.k == 2 or (form == "auto" and few)

    def _warm_up_epsilons(self) -> list[float]:
        """Return the larger epsilons of the first solves, in decreasing order, from the exponents of random tuples."""
        tuples = self.draws.tuples(self.problem.sizes, self.target.shape[0], 64)
        ranges = []
        for l in range(self.problem.k):
            logits = self.log_kernel.conditional(l, tuples)
            ranges.append((logits.amax(2) - logits.amin(2)).mean(1).max())
        ratio = read(torch.stack(ranges)) / MAX_EXPONENT_RANGE
        stages = math.ceil(math.log(ratio) / math.log(EPSILON_RATIO)) if ratio > 1 else 0
        return [self.epsilon * EPSILON_RATIO**stage for stage in range(stages, 0, -1)]

    def _enumerated(self, log_scaling: Tensor) -> Estimate:
        """Solve exactly, with a list of all tuples."""
        for epsilon in self.warm_up_epsilons:
            warm = self._ascend(full_list(log_kernel_of(self.problem, epsilon)), log_scaling, LOOSE_TOL)
            log_scaling = warm.point.log_scaling * EPSILON_RATIO
        kernel = full_list(self.log_kernel)
        # Apart from rounding, the only error is that due to `tol`, and a few more steps nearly remove it.
        last = self._ascend(kernel, log_scaling, self.tol, further=MAX_FURTHER_STEPS)
        zero = torch.zeros_like(last.possible_gain)
        # If several processes share the solve, gradients are computed here, where all of them participate.
        gradients = None if processes() is None else self.problem.detached().gradient(last.point.coupling)
        return Estimate(None, kernel, last.point, SamplingError(last.possible_gain, zero, zero, gradients))

    def _sampled(self, log_scaling: Tensor, form: str, rounds: int) -> Estimate:
        """Solve by sampling. With form="auto", replace inaccurate products by tuples if these are better."""
        last: SampledPoint | None = None
        for epsilon in self.warm_up_epsilons:
            warm = log_kernel_of(self.problem, epsilon)
            centres = self._centres(warm, self.rank // 2, last, log_scaling)
            last = self._sample_and_ascend(tuple_list, warm, centres, log_scaling, LOOSE_TOL)[1].point
            log_scaling = last.log_scaling * EPSILON_RATIO
        build = product_list if self._uses_products(form) else tuple_list
        for index in range(rounds):
            final = index == rounds - 1
            centres = self._centres(self.log_kernel, self.rank if final else self.rank // 2, last, log_scaling)
            kernel, end = self._sample_and_ascend(
                build, self.log_kernel, centres, log_scaling, self.tol if final else LOOSE_TOL
            )
            last, log_scaling = end.point, end.point.log_scaling
        assert last is not None
        estimate = self._with_error(build, kernel, end)
        if build is tuple_list or form == "products" or estimate.total_error() <= ACCEPTED_ERROR:
            return self._cross_checked(estimate, self.rank)
        if estimate.total_error() > POOR_PROPOSAL_ERROR:
            centres = self._centres(self.log_kernel, self.rank // 2, last, log_scaling)
            last = self._sample_and_ascend(tuple_list, self.log_kernel, centres, log_scaling, LOOSE_TOL)[1].point
        centres = self._centres(self.log_kernel, self.rank, last, last.log_scaling)
        other = self._with_error(
            tuple_list, *self._sample_and_ascend(tuple_list, self.log_kernel, centres, last.log_scaling, self.tol)
        )
        return self._cross_checked(min(estimate, other, key=Estimate.total_error), self.rank)

    def _uses_products(self, form: str) -> bool:
        if form == "tuples" or not self.log_kernel.has_products:
            return False
        return form == "products" or read(self.log_kernel.sharpness()) <= MAX_SHARPNESS

    def refine(self, estimate: Estimate, rank: int) -> Estimate:
        """Solve again with new samples.

        If the cross-check contradicts the estimate, the end points of its Gibbs chains are additional centres.
        """
        build = estimate.build
        assert build is not None
        log_scaling = estimate.point.log_scaling
        centres = self._centres(self.log_kernel, rank, estimate.point, log_scaling)
        if estimate.check is not None and estimate.is_contradicted():
            centres = torch.cat([centres, estimate.check.tuples], 1)
        again = self._with_error(
            build, *self._sample_and_ascend(build, self.log_kernel, centres, log_scaling, self.tol)
        )
        return replace(self._cross_checked(again, rank), largest_discrepancy=estimate.largest_discrepancy_so_far())

    def _with_error(self, build: Build, kernel: SampledKernel, end: AscentResult) -> Estimate:
        error = sampling_error(kernel, end.point, self.problem, DRAWS_PER_CENTRE)
        # The factor of four is a safety margin, because the estimate of the error due to `tol` is rough. The last term
        # is the rounding error of the exponents, which is the same in all samples.
        value = error.value + 4 * end.possible_gain + torch.finfo(self.problem.dtype).eps * end.point.reach
        return Estimate(build, kernel, end.point, replace(error, value=value))

    def _cross_checked(self, estimate: Estimate, rank: int) -> Estimate:
        """Return the estimate with the result of a validation sample."""
        assert estimate.build is not None
        minimum = MIN_CHAINS_LOCAL_MAXIMA if self.log_kernel.has_local_maxima else MIN_CHAINS
        count = max(minimum, rank // (DRAWS_PER_CENTRE * VALIDATION_RATIO))
        check = cross_check(
            estimate.build,
            estimate.kernel,
            self.log_kernel,
            estimate.point,
            count,
            DRAWS_PER_CENTRE,
            self.draws,
            self.anchors,
            self.powers,
        )
        return replace(estimate, check=check)

    def _centres(self, log_kernel: LogKernel, rank: int, last: SampledPoint | None, log_scaling: Tensor) -> Tensor:
        """Return centres (b, c, k).

        If `last` is None, half of them are true tuples and half are random. Otherwise, a quarter are true tuples, an
        eighth are end points of Gibbs chains, and all others are draws from the coupling of `last`.
        """
        count, b = max(2, -(-rank // DRAWS_PER_CENTRE)), self.target.shape[0]
        sizes = log_kernel.sizes
        if last is None:
            true = count // 2
            rest = random_starts(log_kernel, log_scaling, count - true, self.draws)
        else:
            true = count // 4
            num_chains = count // 8
            drawn = last.coupling.draw(count - true - num_chains, self.draws)
            starts = random_starts(log_kernel, log_scaling, num_chains, self.draws)
            rest = torch.cat([drawn, gibbs_tuples(log_kernel, starts, log_scaling, self.draws, self.powers)], 1)
        return torch.cat([true_tuples(sizes, true, b, self.draws), rest], 1)

    def _sample_and_ascend(
        self, build: Build, log_kernel: LogKernel, centres: Tensor, log_scaling: Tensor, tol: float
    ) -> tuple[SampledKernel, AscentResult]:
        """Draw a kernel around the centres, and return it with the result of the ascent on its dual."""
        k, rows = len(log_kernel.sizes), centres.shape[1] * DRAWS_PER_CENTRE + self.anchors.shape[1]
        row_bytes = 8 * (log_kernel.num_temporaries + 2 * k**2 + 10 * k)
        # The samples, and vectors with one number per sample, are always stored.
        size, limit = float(self.target.shape[0] * rows * row_bytes), memory_limit(self.target.device)
        _checks.fits(f"solver='sampled' with {rows} rows", size, limit, "use a smaller rank")
        kernel = build(log_kernel, centres, log_scaling, DRAWS_PER_CENTRE, self.draws, self.anchors)
        return kernel, self._ascend(kernel, log_scaling, tol)

    def _ascend(self, kernel: SampledKernel, log_scaling: Tensor, tol: float, *, further: int = 0) -> AscentResult:
        ascended = ascend_dual(
            kernel,
            self.target,
            log_scaling,
            tol=tol,
            max_steps=self.max_steps,
            rounding=torch.finfo(self.problem.dtype).eps,
            further=further,
        )
        self.num_steps += ascended.num_steps
        return ascended
