"""Sampled solver: settings, standard error, and reasons not to trust a result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.sampled.cross_check import MAX_DEVIATIONS
from m3g.solvers.sampled.draws import DefaultDraws, Draws, GeneratorDraws, seeded_draws
from m3g.solvers.sampled.fixed import fixed_rounds
from m3g.solvers.sampled.log_kernel import LogKernel, log_kernel_of
from m3g.solvers.sampled.product_kernel import MAX_SHARPNESS
from m3g.solvers.sampled.rounds import Estimate, Rounds
from m3g.solvers.shared.precision import full_precision, needs_double
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution

# Limits of a trusted result: relative standard error of the gradient, and bias of the value in units of epsilon. With a
# larger bias, the potentials overfit the samples and first-order error estimates are not valid.
MAX_GRADIENT_ERROR = 0.3
MAX_BIAS = 0.06
# After a significant discrepancy with a validation sample, the standard error is at least this fraction of the
# discrepancy: the weights of such samples are heavy-tailed, and their variance does not show this.
DISCREPANCY_FRACTION = 0.15


class SamplingWarning(UserWarning):
    """The result of the sampled solver is not trusted, for example because its estimated error is large."""


@dataclass(frozen=True)
class Sampled(Solver):
    r"""Sampled solver: an estimate with its standard error, in time linear in the number of points n.

    The kernel :math:`e^{-C / \varepsilon}` is replaced by an unbiased, non-negative estimate from `rank` samples, and
    the dual of the estimate (Eq. 9 of the paper) is maximised by Newton steps. There are two such estimates.
    *Products*, for the circular variance only, use the identity

    .. math:: e^{-C / \varepsilon} \;\propto\; \mathbb E_g \prod_l e^{\sqrt{2a} \langle g, r_l \rangle}, \qquad
        a = \frac{1}{k^2 \varepsilon}, \quad g \sim N(0, I)

    with centred views :math:`r_l` and equality up to factors of one view. *Tuples*, for named costs,
    `PairwiseCost` and their sums, are a weighted list of entries of the kernel. Both are drawn by importance sampling
    from a mixture around tuples that are likely to have mass. In later rounds, most of these tuples are drawn from the
    coupling of the previous round.

    Complexity per Newton step, for rank R: O(k n d R) for the circular variance, the circular standard deviation, the
    multilinear product and their sums; O(k² n R) for other sums over pairs of views. The importance weights take
    O(d R²) per round for products and O(k R²) for tuples. Tables of n R numbers per view are stored if they fit into a
    quarter of the memory limit; otherwise they are recomputed in chunks in every pass.

    With two views, or with form="auto" and at most rank · Σ n_l tuples, all tuples are enumerated and nothing is
    sampled, except with `fixed_steps`. The standard error then covers `tol` and rounding only.

    Args:
        rank: number of samples in the last round; half as many in earlier rounds.
        rounds: number of rounds. More follow if an independent validation sample contradicts the result, and more
            precede, at larger epsilons, if epsilon is small.
        form: "products" (circular variance only) is accurate for diffuse couplings, "tuples" for sharp ones. "auto"
            uses products if the components of their mixture overlap, and tuples otherwise. If the estimated error of
            products is large, it also solves with tuples and returns the more accurate of the two results.
        rtol: target relative standard error of the gradient. The rank is increased up to `max_rank`, with a warning if
            that is not sufficient. None keeps `rank`.
        max_rank: maximum rank for `rtol`.
        seed: use the same draws in every solve. The seed is hashed, so that views drawn with the same seed are
            independent of the samples. None draws from `generator`, or from torch's default generator.
        generator: a `torch.Generator` on the device of the views.
        max_steps: maximum number of evaluations of the dual per round, one more than the number of steps. An
            enumeration may take up to four more steps.
        fixed_steps: evaluate the dual exactly this number of times in each of `rounds` rounds, with one step between
            successive evaluations. The error is not read on the host, so that the solve compiles to one graph.
            Requires the circular variance, form="auto" or "products", and no `rtol`. The standard error of an untrusted
            result is infinite. Compiled code draws from torch's default generator and accepts neither `seed` nor
            `generator`.

    Example:
        >>> import torch, m3g
        >>> _ = torch.manual_seed(0)
        >>> views = torch.nn.functional.normalize(torch.randn(8, 1, 32) + torch.randn(64, 32), dim=-1)
        >>> solution = m3g.solve(m3g.CircularVariance()(views), epsilon=0.05, solver=m3g.Sampled(rank=1024, seed=0))
        >>> solution.converged, bool(solution.standard_error < 0.01)
        (True, True)

    References: Scetbon and Cuturi, 2020 :cite:`scetbon2020`, for positive features; Owen, 2013 :cite:`owen2013`, for
    importance sampling from mixtures; Nocedal and Wright, 2006 :cite:`nocedal2006`, for Newton steps by conjugate
    gradients. docs/sampled.md derives the error estimates.
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
    distributable = True
    exact = False

    def __post_init__(self) -> None:
        self.validate(_checks.positive_int, "rank", "rounds", "max_rank", "max_steps", "fixed_steps")
        _checks.one_of("form", self.form, ("auto", "products", "tuples"))
        if self.fixed_steps is not None and (self.form == "tuples" or self.rtol is not None):
            raise ValueError(
                "fixed_steps must be None with form='tuples' or rtol, because a solve with fixed_steps uses products "
                "and does not read its error."
            )
        self.validate(_checks.positive, "rtol")
        self.validate(_checks.seed, "seed")
        if not isinstance(self.generator, (torch.Generator, type(None))):
            raise ValueError(f"generator must be a torch.Generator or None, got {type(self.generator).__name__}.")
        if self.seed is not None and self.generator is not None:
            raise ValueError("seed must be None if a generator is given, got both.")

    def with_seed(self, draw: Callable[[torch.Generator | None], int]) -> Sampled:
        return self if self.seed is not None else replace(self, seed=draw(self.generator), generator=None)

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if torch.compiler.is_compiling():  # global settings such as `full_precision` cannot change inside a graph
            if self.fixed_steps is None:
                raise ValueError(
                    "fixed_steps must be a whole number with solver='sampled' in compiled code: "
                    "set it, or call m3g.solve outside torch.compile."
                )
            if self.seed is not None or self.generator is not None:
                raise ValueError(
                    "seed and generator must be None in compiled code, which draws from torch's default generator: "
                    "use torch.manual_seed."
                )
            with torch.no_grad():
                return self._solve_fixed(problem, epsilon, tol, weights)
        with full_precision(problem.device):
            if self.fixed_steps is not None:
                return self._solve_fixed(problem, epsilon, tol, weights)
            log_kernel = log_kernel_of(problem, epsilon)
            if self.form == "products" and not log_kernel.has_products:
                raise ValueError(f"form must be 'auto' or 'tuples' for a {type(problem).__name__}, got 'products'.")
            if problem.dtype == torch.float32 and needs_double(problem.tensors[0], log_kernel.reach(), tol):
                wide = problem.with_tensors([tensor.detach().double() for tensor in problem.tensors])
                return self._solve_rounds(wide, epsilon, tol, weights).in_units_of(problem)
            return self._solve_rounds(problem, epsilon, tol, weights)

    def _solve_rounds(self, problem: Problem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        """Solve in rounds, increase the rank as `rtol` requires, and warn if the result is not trusted."""
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
        estimate, rank = rounds.solve(log_target, form=self.form, rounds=self.rounds), self.rank
        while self.rtol is not None and estimate.relative_gradient_error() > self.rtol and rank < self.max_rank:
            # The error decreases as rank^(-1/2). An increase of at least a half avoids many small increases.
            growth = max(1.5, (estimate.relative_gradient_error() / self.rtol) ** 2)
            rank = math.ceil(min(self.max_rank, rank * growth))
            estimate = rounds.refine(estimate, rank)
        reasons = self._untrusted_reasons(estimate, too_sharp=rounds.too_sharp)
        if reasons:
            # The text contains no number that varies between solves, so that Python's default filter shows it once.
            warnings.warn(
                f"the result of solver 'sampled' is not trusted: {', and '.join(reasons)}; "
                "use a higher rank or a larger epsilon.",
                SamplingWarning,
                stacklevel=4,
            )
        standard_error = _standard_error(problem, estimate, epsilon=epsilon, tol=tol, trusted=not reasons)
        return _solution(
            problem, estimate, epsilon, tol, rounds.num_steps, standard_error, Result.UNTRUSTED if reasons else None
        )

    def _draws(self, problem: Problem) -> Draws:
        if self.seed is not None:
            return seeded_draws(self.seed, problem.device)
        if self.generator is None:
            return DefaultDraws(problem.device)
        return GeneratorDraws(problem.device, self.generator)

    def _solve_fixed(self, problem: Problem, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        """Solve with a fixed number of steps, without reading values on the host."""
        assert self.fixed_steps is not None
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
        estimate = fixed_rounds(
            problem,
            log_kernel,
            target,
            log_target,
            self._draws(problem),
            rank=self.rank,
            rounds=self.rounds,
            steps=self.fixed_steps,
        )
        standard_error = _standard_error(problem, estimate, epsilon=epsilon, tol=tol, trusted=True)
        standard_error = torch.where(_trusted(log_kernel, estimate), standard_error, torch.inf)
        return _solution(problem, estimate, epsilon, tol, self.rounds * self.fixed_steps, standard_error, None)

    def _untrusted_reasons(self, estimate: Estimate, *, too_sharp: bool) -> list[str]:
        """Return the reasons not to trust an estimate; empty if it is trusted."""
        if estimate.kernel.exact:
            return []
        reasons = []
        if not estimate.relative_gradient_error() <= MAX_GRADIENT_ERROR:
            reasons.append(f"the relative standard error of its gradient exceeds {MAX_GRADIENT_ERROR:g}")
        elif self.rtol is not None and estimate.relative_gradient_error() > self.rtol:
            reasons.append(
                f"the relative standard error of its gradient exceeds rtol={self.rtol:g} at the highest rank"
            )
        if not float(estimate.error.bias.max()) <= MAX_BIAS:
            reasons.append(f"its value is biased by more than {MAX_BIAS:g} epsilon")
        if estimate.is_contradicted():
            reasons.append("an independent sample disagrees about its mass")
        if too_sharp:
            reasons.append("epsilon is so small relative to the costs that samples may miss tuples with mass")
        return reasons + estimate.kernel.untrusted_reasons()


def _trusted(log_kernel: LogKernel, estimate: Estimate) -> Tensor:
    """Return whether each problem of the batch is trusted: (b,).

    The criteria are those of `Sampled._untrusted_reasons` except `rtol` and `too_sharp`.
    """
    assert estimate.check is not None
    error = estimate.error
    within_limits = (
        (error.gradient <= MAX_GRADIENT_ERROR) & (error.bias <= MAX_BIAS) & (log_kernel.sharpness() <= MAX_SHARPNESS)
    )
    return within_limits & (estimate.check.deviations(error) <= MAX_DEVIATIONS)


def _solution(
    problem: Problem,
    estimate: Estimate,
    epsilon: float,
    tol: float,
    num_steps: int,
    standard_error: Tensor,
    reason: Result | None,
) -> Solution:
    error, dtype = estimate.error, problem.dtype
    potentials = _potentials(problem, estimate, epsilon)
    value = ((potentials - epsilon / problem.k) * estimate.point.target).sum(1) - epsilon * error.bias
    return Solution(
        problem=problem,
        epsilon=epsilon,
        value=value.to(dtype).view(problem.batch),
        flat_potentials=potentials,
        error=estimate.point.error.to(dtype).view(problem.batch),
        num_steps=num_steps,
        tol=tol,
        solver=Sampled.name,
        coupling_form=estimate.point.coupling,
        standard_error=standard_error.to(dtype).view(problem.batch),
        relative_gradient_error=error.gradient.to(dtype).view(problem.batch),
        reason=reason,
        gradients=error.gradients,
    )


def _potentials(problem: Problem, estimate: Estimate, epsilon: float) -> Tensor:
    return (estimate.point.log_scaling + log_kernel_of(problem, epsilon).shift) * epsilon


def _standard_error(problem: Problem, estimate: Estimate, *, epsilon: float, tol: float, trusted: bool) -> Tensor:
    """Return the standard error of the value (b,), due to sampling, validation, an early stop and rounding."""
    out = epsilon * estimate.error.value
    if estimate.check is not None:
        out = torch.maximum(out, epsilon * estimate.check.variance.sqrt())
        out = torch.maximum(out, epsilon * estimate.check.discrepancy(estimate.error) / (4 if trusted else 1))
    if estimate.largest_discrepancy is not None:
        out = torch.maximum(out, epsilon * DISCREPANCY_FRACTION * estimate.largest_discrepancy)
    if estimate.kernel.tuples is not None and not estimate.kernel.exact:
        # A tuple of less mass than this is drawn less than once on average, so that the samples may miss it.
        mass = estimate.point.target[:, : problem.sizes[0]].sum(1)
        out = torch.maximum(out, epsilon * mass / estimate.kernel.tuples.shape[1])
    potentials = _potentials(problem, estimate, epsilon)
    size = torch.stack([part.abs().amax(1) for part in potentials.split(list(problem.sizes), 1)]).sum(0)
    marginal_error = estimate.point.error
    # If the ascent stopped early, the dual may still increase by the marginal error times the size of the potentials.
    out = out + torch.where(marginal_error <= tol, 0.0, marginal_error * size)
    return out + 4 * torch.finfo(problem.dtype).eps * (1 + size)
