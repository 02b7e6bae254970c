"""Multi-marginal Sinkhorn algorithm (Algorithm 1 of the paper) in the log domain, for any cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import Problem
from m3g.solvers.shared.couplings import DenseCoupling, log_slab, slabs
from m3g.solvers.shared.memory import memory_limit
from m3g.solvers.shared.precision import full_precision, largest_magnitude, needs_double
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution


@dataclass(frozen=True)
class Sinkhorn(Solver):
    r"""Multi-marginal Sinkhorn algorithm (Algorithm 1 of the paper) for any cost, the reference for other solvers.

    A sweep updates the potential :math:`f_l` of one view after the other, so that the marginal :math:`m_l(P)` of the
    coupling equals the weights :math:`a_l`. This is block coordinate ascent on the dual (Eq. 9 of the paper):

    .. math:: f_l \leftarrow f_l - \varepsilon \bigl( \log m_l(P) - \log a_l \bigr), \qquad l = 1, \dots, k

    where :math:`m_l(P)` and :math:`a_l` have shape (n_l), and P and C shape (n_1, …, n_k).

    Complexity per sweep: k passes over the cost tensor, each with n^k exponentials and k n^k additions. If `tol` is
    proportional to ε, the worst case of a solve is O(k³ n^k / ε²), up to logarithmic factors. Memory: the cost tensor,
    n^k numbers.

    Args:
        max_steps: maximum number of sweeps over the k views.
        check_every: number of sweeps between evaluations of the error; an evaluation takes about as long as a sweep.
        fixed_steps: take exactly this number of sweeps without reading the error.
        memory_limit: maximum bytes of the cost tensor; None means half of the total memory of the device.

    Example:
        >>> import torch, m3g
        >>> m3g.solve(torch.rand(4, 4, 4), epsilon=0.5, solver=m3g.Sinkhorn()).converged
        True

    References: Piran et al., ICML 2024 :cite:`piran2024`; Cuturi, 2013 :cite:`cuturi2013`; Benamou et al., 2015
    :cite:`benamou2015`; Lin et al., 2022 :cite:`lin2022`, for the complexity.
    """

    max_steps: int = 5000
    check_every: int = 5
    fixed_steps: int | None = None
    memory_limit: int | None = None

    name = "sinkhorn"

    def __post_init__(self) -> None:
        self.validate(_checks.positive_int, "max_steps", "check_every", "fixed_steps", "memory_limit")

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        size = problem.num_batch * problem.num_tuples * problem.dtype.itemsize
        limit = memory_limit(problem.device) if self.memory_limit is None else self.memory_limit
        shape = " x ".join(map(str, problem.sizes))
        _checks.fits(
            f"the cost tensor of {shape} entries",
            size,
            limit,
            "use solver='sampled' (named costs), solver='factored' (sums over pairs), fewer points, or fewer views",
        )
        # Global settings such as `full_precision` cannot change inside a compiled graph.
        with torch.no_grad() if torch.compiler.is_compiling() else full_precision(problem.device):
            target = concatenated_weights(problem, weights)
            cost = problem.dense()
            if self.fixed_steps is None and needs_double(cost, largest_magnitude(cost) / epsilon, tol):
                del cost
                _checks.fits(f"the cost tensor of {shape} entries in float64", 2 * size, limit, "use a larger epsilon")
                wide = problem.detached().with_tensors([tensor.detach().double() for tensor in problem.tensors])
                return self._solve(wide, wide.dense(), epsilon, tol, target).in_units_of(problem)
            return self._solve(problem, cost, epsilon, tol, target)

    def _solve(self, problem: Problem, cost: Tensor, epsilon: float, tol: float, target: Tensor) -> Solution:
        """Solve for the costs (b, n_1, …, n_k) and the weights `target` (b, N)."""
        sizes = list(problem.sizes)
        log_weights = [part.to(cost.dtype) for part in target.log().split(sizes, 1)]
        potentials = [torch.zeros_like(part) for part in log_weights]
        max_steps = self.fixed_steps or self.max_steps
        for step in range(1, max_steps + 1):
            for l in range(problem.k):
                log_marginal = log_sums(cost, potentials, epsilon, [l])[0]
                potentials[l] = potentials[l] - epsilon * (log_marginal - log_weights[l])
            if step == max_steps or (self.fixed_steps is None and step % self.check_every == 0):
                marginals = torch.cat(log_sums(cost, potentials, epsilon, range(problem.k)), 1).exp().double()
                error = (marginals - target).abs().sum(1)
                worst = float(error.max()) if self.fixed_steps is None else 0.0
                if worst <= tol or worst != worst:
                    break
        reason = None
        if self.fixed_steps is None:
            within_range = Result.CONVERGED if worst <= tol else Result.OUT_OF_STEPS
            reason = within_range if math.isfinite(worst) else Result.OUT_OF_RANGE
        mass = marginals.split(sizes, 1)[0].sum(1)
        value = (torch.cat(potentials, 1) * target).sum(1) - epsilon * mass
        return Solution(
            problem=problem,
            epsilon=epsilon,
            value=value.to(problem.dtype).reshape(problem.batch),
            flat_potentials=torch.cat(potentials, 1),
            error=error.to(problem.dtype).reshape(problem.batch),
            num_steps=step,
            tol=tol,
            solver=self.name,
            coupling_form=DenseCoupling(cost, potentials, epsilon),
            reason=reason,
        )


def log_sums(cost: Tensor, potentials: list[Tensor], epsilon: float, views: Iterable[int]) -> list[Tensor]:
    """Return log m_l(P), (b, n_l), for each of the given views, in one pass over the cost."""
    num_batch, *sizes = cost.shape
    parts: dict[int, list[Tensor]] = {l: [] for l in views}
    for rows in slabs(sizes, num_batch, cost.element_size()):
        exponent = log_slab(cost[:, rows], potentials, rows, epsilon)
        for l, slab_sums in parts.items():
            slab_sums.append(exponent.logsumexp([a + 1 for a in range(len(sizes)) if a != l]))
    return [torch.cat(part, 1) if l == 0 else torch.stack(part).logsumexp(0) for l, part in parts.items()]
