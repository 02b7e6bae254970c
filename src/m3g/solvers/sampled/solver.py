"""Sampled solver, linear in the number of views: its settings and its error report."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.sampled.cross_check import MOST_DEVIATIONS
from m3g.solvers.sampled.draws import CommonDraws, Draws, GeneratorDraws, seeded_draws
from m3g.solvers.sampled.fixed import fixed_rounds
from m3g.solvers.sampled.log_kernel import LogKernel, log_kernel_of
from m3g.solvers.sampled.product_kernel import SHARP
from m3g.solvers.sampled.rounds import Rounds, SolvedList
from m3g.solvers.shared.precision import full_precision, needs_double
from m3g.solvers.shared.result import Result
from m3g.solvers.shared.solver import Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution

# Limits of a trusted result: relative standard error of the gradient, and bias of the value in units of epsilon. With a
# larger bias the potentials overfit the sample, and first-order error estimates are not valid.
UNTRUSTED = 0.3
UNTRUSTED_BIAS = 0.06
# After a discrepancy with the validation sample, the standard error is at least this fraction of the discrepancy,
# because the weights of such samples are heavy-tailed, which their standard error does not show.
REPAIRED = 0.15


class SamplingWarning(UserWarning):
    """The estimated error of a sampled solution is too large to trust it."""


@dataclass(frozen=True)
class Sampled(Solver):
    r"""Sampled solver: an estimate in time linear in k and n, with its standard error.

    .. math:: e^{-C / \varepsilon} \;\propto\; \mathbb E_g \prod_l e^{\sqrt{2a} \langle g, r_l \rangle}, \qquad
        a = \frac{1}{k^2 \varepsilon}, \quad g \sim N(0, I)

    for the circular variance, with centred views :math:`r_l`; other costs use a weighted list of tuples. The dual (Eq.
    9 of the paper) of the sampled kernel is solved by Newton steps. Complexity per step: O(k n d rank) for the circular
    variance, the circular standard deviation, the multilinear product and their sums, O(k² n rank) for other sums over
    pairs of views. Tables of rank · n numbers per view are stored if they fit into the memory limit; otherwise they are
    recomputed in chunks in every pass.

    If there are at most rank · Σ n_l tuples, or two views, all tuples are enumerated and nothing is sampled (unless
    `form` is set): the standard error is then that of rounding.

    Args:
        rank: samples in the last round; half as many in earlier rounds.
        rounds: number of rounds; later ones sample around the previous coupling. Rounds are added at the end if the
            validation sample disagrees, and at the start if epsilon is small.
        form: representation of the kernel. "products" (circular variance only) is accurate for spread-out couplings,
            "tuples" for sharp ones; "auto" uses tuples if products do not overlap, otherwise products, and also tries
            tuples if the product estimator reports a large error.
        rtol: target relative standard error of the gradient; the rank is increased up to `max_rank`, with a warning if
            that is not sufficient; None keeps `rank`.
        max_rank: limit of the rank for `rtol`.
        seed: use the same draws in every solve. The seed is hashed, because the views may have been drawn with the same
            seed. None draws from `generator`, or from torch's default generator.
        generator: a `torch.Generator` on the device of the views.
        max_steps: maximum number of Newton steps per round.
        fixed_steps: take exactly this number of steps in each of `rounds` rounds without reading the error (one
            compiled graph). It requires the circular variance and excludes form="tuples". The standard error of an
            untrusted result is infinite. Compiled code draws from torch's default generator and accepts no seed.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(8, 1, 32) + torch.randn(64, 32), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, solver=m3g.Sampled(rank=1024, seed=0))
        >>> solution.converged, bool(solution.standard_error < 0.01)
        (True, True)

    References: Scetbon and Cuturi, 2020 :cite:`scetbon2020`, for positive features; Owen, 2013 :cite:`owen2013`, for
    mixture proposals and importance weights. The error estimates are derived in docs/sampled.md.
    """

    rank: int = 4096
    rounds: int = 2
    form: str = "auto"
    rtol: float | None = None
    max_rank: int = 65536
    seed: int | None = None
    generator: torch.Generator | None = None
    max_steps: int = 60
    fixed_steps: int | None = None

    name = "sampled"
    exact = False

    def __post_init__(self) -> None:
        for field in ("rank", "rounds", "max_rank", "max_steps"):
            _checks.positive_int(field, getattr(self, field))
        if self.fixed_steps is not None:
            _checks.positive_int("fixed_steps", self.fixed_steps)
        _checks.one_of("form", self.form, ("auto", "products", "tuples"))
        if self.fixed_steps is not None and (self.form == "tuples" or self.rtol is not None):
            raise ValueError("fixed_steps must be None with form='tuples' or rtol, because both read the error.")
        if self.rtol is not None:
            _checks.positive("rtol", self.rtol)
        if self.seed is not None:
            _checks.seed("seed", self.seed)
        if not isinstance(self.generator, (torch.Generator, type(None))):
            raise ValueError(f"generator must be a torch.Generator or None, got {type(self.generator).__name__}.")
        if self.seed is not None and self.generator is not None:
            raise ValueError("seed must be None if a generator is given, got both.")

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Sampled:
        return self if self.seed is not None else replace(self, seed=draw(self.generator), generator=None)

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if torch.compiler.is_compiling():  # settings of the process cannot change inside a graph
            if self.seed is not None or self.generator is not None:
                raise ValueError(
                    "seed and generator must be None in compiled code, which draws from torch's default generator: "
                    "use torch.manual_seed."
                )
            with torch.no_grad():
                return self._fixed(problem, epsilon, tol, weights)
        with full_precision(problem.device):
            if self.fixed_steps is not None:
                return self._fixed(problem, epsilon, tol, weights)
            log_kernel = log_kernel_of(problem, epsilon)
            if self.form == "products" and not log_kernel.has_products:
                raise ValueError(f"form must be 'auto' or 'tuples' for a {type(problem).__name__}, got 'products'.")
            if problem.dtype == torch.float32 and needs_double(problem.tensors[0], log_kernel.reach(), tol):
                wide = problem.with_tensors([tensor.detach().double() for tensor in problem.tensors])
                return self._rounds(wide, epsilon, tol, weights).in_units_of(problem)
            return self._rounds(problem, epsilon, tol, weights)

    def _rounds(self, problem: Problem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        target = concatenated_weights(problem, weights)
        log_target = target.log()
        rounds = Rounds(
            problem,
            target,
            self._draws(problem),
            epsilon=epsilon,
            tol=tol,
            rank=self.rank,
            max_steps=self.max_steps,
        )
        solved, rank = rounds.solve(log_target, form=self.form, rounds=self.rounds), self.rank
        while self.rtol is not None and solved.relative_gradient_error() > self.rtol and rank < self.max_rank:
            # Increase by at least half, because after an underestimate many small increases would follow.
            growth = max(1.5, (solved.relative_gradient_error() / self.rtol) ** 2)
            rank = math.ceil(min(self.max_rank, rank * growth))
            solved = rounds.refine(solved, rank)
        reasons = self._doubts(solved, too_sharp=rounds.too_sharp)
        if reasons:
            # The text has no numbers that vary between steps, so that Python's default filter shows it once.
            warnings.warn(
                f"the result of solver 'sampled' is not trusted: {', and '.join(reasons)}; "
                "use a higher rank or a larger epsilon.",
                SamplingWarning,
                stacklevel=4,
            )
        spread = _standard_error(problem, solved, epsilon=epsilon, tol=tol, trusted=not reasons)
        return _solution(problem, solved, epsilon, tol, rounds.num_steps, spread, Result.UNTRUSTED if reasons else None)

    def _draws(self, problem: Problem) -> Draws:
        if self.seed is not None:
            return seeded_draws(self.seed, problem.device)
        return CommonDraws(problem.device) if self.generator is None else GeneratorDraws(problem.device, self.generator)

    def _fixed(self, problem: Problem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        assert self.fixed_steps is not None, "without fixed_steps, a loss leaves compiled code before the solve"
        if not torch.compiler.is_compiling():
            _checks.not_vmapped("views", problem.tensors[0], why="solver='sampled' draws at random")
        log_kernel = log_kernel_of(problem, epsilon)
        if not log_kernel.has_products:
            raise ValueError(
                "cost must be the circular variance with fixed_steps of solver='sampled', "
                f"got {type(problem).__name__}."
            )
        target = concatenated_weights(problem, weights)
        log_target = target.log()
        solved = fixed_rounds(
            problem,
            log_kernel,
            target,
            log_target,
            self._draws(problem),
            rank=self.rank,
            rounds=self.rounds,
            steps=self.fixed_steps,
        )
        spread = _standard_error(problem, solved, epsilon=epsilon, tol=tol, trusted=True)
        spread = torch.where(_trusted(log_kernel, solved), spread, torch.inf)
        return _solution(problem, solved, epsilon, tol, self.rounds * self.fixed_steps, spread, None)

    def _doubts(self, solved: SolvedList, *, too_sharp: bool) -> list[str]:
        """Return the reasons not to trust the result."""
        if solved.listed.exact:
            return []
        reasons = []
        if not solved.relative_gradient_error() <= UNTRUSTED:
            reasons.append(f"the relative standard error of its gradient exceeds {UNTRUSTED:g}")
        elif self.rtol is not None and solved.relative_gradient_error() > self.rtol:
            reasons.append(
                f"the relative standard error of its gradient exceeds rtol={self.rtol:g} at the highest rank"
            )
        if not float(solved.error.bias.max()) <= UNTRUSTED_BIAS:
            reasons.append(f"its value is biased by more than {UNTRUSTED_BIAS:g} epsilon")
        if solved.doubtful():
            reasons.append("an independent sample disagrees about its mass")
        if too_sharp:
            reasons.append("epsilon is so small relative to the costs that samples may miss tuples with mass")
        return reasons + solved.listed.doubts()


def _trusted(log_kernel: LogKernel, solved: SolvedList) -> Tensor:
    """Return whether each result is trusted, by the criteria of `Sampled._doubts`: (b,)."""
    assert solved.check is not None
    error = solved.error
    fine = (error.gradient <= UNTRUSTED) & (error.bias <= UNTRUSTED_BIAS) & (log_kernel.sharpness() <= SHARP)
    return fine & (solved.check.deviations(error) <= MOST_DEVIATIONS)


def _solution(
    problem: Problem,
    solved: SolvedList,
    epsilon: float,
    tol: float,
    num_steps: int,
    standard_error: Tensor,
    reason: Result | None,
) -> Solution:
    error, dtype = solved.error, problem.dtype
    potentials = _potentials(problem, solved, epsilon)
    value = ((potentials - epsilon / problem.k) * solved.point.target).sum(1) - epsilon * error.bias
    return Solution(
        problem=problem,
        epsilon=epsilon,
        value=value.to(dtype).view(problem.batch),
        flat_potentials=potentials,
        error=solved.point.error.to(dtype).view(problem.batch),
        num_steps=num_steps,
        tol=tol,
        solver=Sampled.name,
        coupling_form=solved.point.coupling,
        standard_error=standard_error.to(dtype).view(problem.batch),
        relative_gradient_error=error.gradient.to(dtype).view(problem.batch),
        reason=reason,
        gradients=error.gradients,
    )


def _potentials(problem: Problem, solved: SolvedList, epsilon: float) -> Tensor:
    return (solved.point.log_scaling + log_kernel_of(problem, epsilon).shift) * epsilon


def _standard_error(problem: Problem, solved: SolvedList, *, epsilon: float, tol: float, trusted: bool) -> Tensor:
    """Return the standard error of the value (b,) due to sampling, discrepancies, an early stop and rounding."""
    out = epsilon * solved.error.value
    if solved.check is not None:
        out = torch.maximum(out, epsilon * solved.check.difference(solved.error) / (4 if trusted else 1))
    if solved.contradicted is not None:
        out = torch.maximum(out, epsilon * REPAIRED * solved.contradicted)
    if solved.listed.tuples is not None and not solved.listed.exact:
        # A tuple with less mass than this is drawn less than once on average, so the samples may miss it.
        mass = solved.point.target[:, : problem.sizes[0]].sum(1)
        out = torch.maximum(out, epsilon * mass / solved.listed.tuples.shape[1])
    potentials = _potentials(problem, solved, epsilon)
    size = torch.stack([part.abs().amax(1) for part in potentials.split(list(problem.sizes), 1)]).sum(0)
    left = solved.point.error
    # The dual may still increase by the residual times the remaining change of the potentials.
    out = out + torch.where(left <= tol, 0.0, left * size)
    return out + 4 * torch.finfo(problem.dtype).eps * (1 + size)
