"""The exact and fast solver for costs that are sums over pairs of views.

1. Each pair kernel is balanced on its own (kernels.py), which costs O(n²) and already puts the product of the
   kernels close to the solution.
2. One contraction (contraction.py, or graph.py where edges are missing) gives all pair marginals.
3. They are the Hessian of the dual, so a Newton step follows (newton.py); back to 2 until the marginals are right.

The pair marginals of the last contraction are also the gradient: a backward pass costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import PairwiseProblem, Problem
from m3g.costs.problem import Edge
from m3g.solvers.contraction import CompleteContraction
from m3g.solvers.couplings import PairwiseCoupling
from m3g.solvers.graph import GraphContraction
from m3g.solvers.kernels import balanced_kernels
from m3g.solvers.newton import hessian, solve_newton
from m3g.solvers.precision import full_precision, vector_dtype
from m3g.solvers.solution import Solution

# The largest change of the exponent of a tuple in one Newton step.
LONGEST_STEP = 6.0
# A step is taken back, in part, where it lowers the dual by more than this (in units of epsilon).
LOSS_ALLOWED = 1e-3
MOST_RETREATS = 12


@dataclass(frozen=True)
class Factored:
    """Exact for every pairwise cost, by matrix products; nothing of size n^k is held.

    Args:
        newton: take Newton steps. None lets the solver choose: they are taken where every pair of views carries a
            cost. False leaves Sinkhorn updates only.
        max_steps: contractions before it gives up; None means 100 with Newton steps and 10 000 without.
        check_every: steps between two looks at the error. On an accelerator every look makes the host wait; None
            means 1 on a CPU and 4 elsewhere.
        fixed_steps: take just this many steps and never look (no waiting for an accelerator); `Solution.error`
            still tells how good they were. Steps are then not taken back, and kernels keep the problem's type.
    """

    newton: bool | None = None
    max_steps: int | None = None
    check_every: int | None = None
    fixed_steps: int | None = None

    name = "factored"

    def __post_init__(self) -> None:
        for field in ("max_steps", "check_every", "fixed_steps"):
            if getattr(self, field) is not None:
                _checks.positive_int(field, getattr(self, field))

    def solve(self, problem: Problem, *, epsilon: float, tol: float, weights: list[Tensor] | None) -> Solution:
        if not isinstance(problem, PairwiseProblem):
            raise ValueError(
                "solver='factored' takes a cost that is a sum over pairs of views, "
                f"got {type(problem).__name__}: use solver='sinkhorn'."
            )
        if self.newton and not problem.complete:
            raise ValueError("newton takes None or False where some pairs of views carry no cost, got True.")
        with full_precision(problem.device):
            kernels, shift = balanced_kernels(problem, epsilon=epsilon, tol=tol, look=self.fixed_steps is None)
            ascent = _Ascent(problem, kernels, concatenated_weights(problem, weights))
            self._run(ascent, tol, newton=problem.complete if self.newton is None else self.newton)
            return ascent.solution(epsilon, tol, shift)

    def _run(self, ascent: _Ascent, tol: float, *, newton: bool) -> None:
        max_steps = self.max_steps or (100 if newton else 10_000)
        every = self.check_every or (1 if ascent.target.device.type == "cpu" else 4)
        retreats = 0
        for step in range(1, (self.fixed_steps or max_steps) + 1):
            ascent.evaluate()
            if self.fixed_steps is None and (step % every == 0 or step == max_steps):
                if retreats < MOST_RETREATS and step < max_steps and ascent.retreat():
                    retreats += 1
                    continue
                retreats = 0
                error = float(ascent.error.max())
                if error <= tol or error != error:
                    return
            if step < (self.fixed_steps or max_steps):
                ascent.newton_step() if newton else ascent.sinkhorn_step()


class _Ascent:
    """The climb on the dual: log scalings, the contraction at them, and the step that led there."""

    def __init__(self, problem: PairwiseProblem, kernels: dict[Edge, Tensor], target: Tensor):
        self.problem = problem
        self.sizes = list(problem.sizes)
        self.target = target
        self.contraction: CompleteContraction | GraphContraction = (
            CompleteContraction if problem.complete else GraphContraction
        )(kernels, self.sizes)
        self.dtype = next(iter(kernels.values())).dtype
        self.lead_target = target.split(self.sizes, 1)[self.contraction.lead].to(self.dtype)
        self.log_scaling = target.log()
        self.accepted = self.log_scaling
        self.step = torch.zeros_like(target)
        self.length = torch.ones_like(target[:, :1])
        self.height = torch.full_like(self.length, -torch.inf)
        self.num_steps = 0

    def scalings(self) -> list[Tensor]:
        return list(self.log_scaling.exp().to(self.dtype).split(self.sizes, 1))

    def evaluate(self) -> None:
        """All pair marginals at the current scalings, the leading view being scaled to its weights on the way."""
        self.num_steps += 1
        self.pairs, singles, factor = self.contraction.evaluate(self.scalings(), self.lead_target)
        self.log_scaling = self.log_scaling.clone()
        self.log_scaling.split(self.sizes, 1)[self.contraction.lead].add_(factor.log())
        self.marginals = torch.cat(singles, 1)
        self.residual = self.target - self.marginals
        self.error = self.residual.abs().sum(1)

    def retreat(self) -> bool:
        """Go back a part of the last step where it lost ground; whether that was so for any problem."""
        # The leading marginal is met, so the mass is right and the dual value needs no contraction.
        reached = (self.log_scaling * self.target).sum(1, keepdim=True)
        lost = ~(reached >= self.height - LOSS_ALLOWED)
        if not bool(lost.any()):
            self.height = reached
            return False
        self.length = torch.where(lost, self.length / 4, 0.0)
        self.log_scaling = torch.where(lost, self.accepted + self.length * self.step, self.log_scaling)
        return True

    def newton_step(self) -> None:
        matrix = hessian(self.pairs, self.marginals, self.sizes)
        self.step = solve_newton(matrix, self.residual, rtol=0.05)
        longest = torch.stack([part.abs().amax(1) for part in self.step.split(self.sizes, 1)]).sum(0)
        self._go((LONGEST_STEP / longest).clamp(max=1.0).unsqueeze(1))

    def sinkhorn_step(self) -> None:
        """The mean of the k - 1 exact updates of one view each: the dual is concave, so it never loses ground."""
        self.step = (self.target / self.marginals).log()
        self._go(torch.full_like(self.height, 1 / max(1, self.problem.k - 1)))

    def _go(self, length: Tensor) -> None:
        self.accepted = self.log_scaling
        self.length = length
        self.log_scaling = self.accepted + length * self.step

    def solution(self, epsilon: float, tol: float, shift: Tensor) -> Solution:
        problem, dtype = self.problem, self.problem.dtype
        potentials = list(((self.log_scaling + shift) * epsilon).split(self.sizes, 1))
        for l in range(problem.k):
            unary = problem.unary(l)
            if unary is not None:
                potentials[l] = potentials[l] + unary
        potentials[0] = potentials[0] + problem.constant
        mass = self.lead_target.sum(1)
        value = (torch.cat(potentials, 1) * self.target).sum(1) - epsilon * mass
        scalings, contraction = self.scalings(), self.contraction
        coupling = PairwiseCoupling(
            problem=problem,
            potentials=[part.to(dtype) for part in potentials],
            epsilon=epsilon,
            marginals=[part.to(dtype) for part in self.marginals.split(self.sizes, 1)],
            pairs={edge: pair.to(dtype) for edge, pair in self.pairs.items()},
            missing=lambda l, m: contraction.pair(scalings, l, m),
        )
        return Solution(
            problem=problem,
            epsilon=epsilon,
            value=value.to(dtype).reshape(problem.batch),
            potentials=[part.reshape(*problem.batch, -1) for part in coupling.potentials],
            error=self.error.to(dtype).reshape(problem.batch),
            num_steps=self.num_steps,
            tol=tol,
            solver=Factored.name,
            coupling_form=coupling,
        )


def concatenated_weights(problem: Problem, weights: list[Tensor] | None) -> Tensor:
    """The k marginals a_l, one after the other: (b, N)."""
    dtype = vector_dtype(problem.device)
    if weights is None:
        weights = [torch.full((n,), 1 / n, dtype=dtype, device=problem.device) for n in problem.sizes]
    return torch.cat(
        [part.to(dtype).reshape(-1, n).expand(problem.num_batch, n) for part, n in zip(weights, problem.sizes)],
        1,
    )
