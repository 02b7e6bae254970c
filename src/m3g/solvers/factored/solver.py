"""The exact and fast solver for costs that are sums over pairs of views.

1. Each pair kernel is balanced on its own (kernels.py), which costs O(n²) and already puts the product of the
   kernels close to the solution.
2. One contraction (contraction.py, or graph.py where edges are missing) gives all pair marginals.
3. They are the Hessian of the dual, so a Newton step follows (newton.py); back to 2 until the marginals are right.

The pair marginals of the last contraction are also the gradient: a backward pass costs nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g.costs import PairwiseProblem, Problem
from m3g.solvers.factored.contraction import CompleteContraction
from m3g.solvers.factored.graph import GraphContraction
from m3g.solvers.factored.kernels import Kernels, pair_kernels
from m3g.solvers.shared.couplings import PairwiseCoupling
from m3g.solvers.shared.newton import solve_newton
from m3g.solvers.shared.precision import full_precision
from m3g.solvers.shared.solver import Solver
from m3g.solvers.shared.weights import concatenated_weights
from m3g.solvers.solution import Solution

# The largest change of the exponent of a tuple in one Newton step.
LONGEST_STEP = 6.0
# What is added to the diagonal of the Newton system, relative to it and to the error.
DAMPING = 0.03
# A step is taken back, in part, where it lowers the dual by more than this (in units of epsilon).
LOSS_ALLOWED = 1e-3
MOST_RETREATS = 12


@dataclass(frozen=True)
class Factored(Solver):
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
                "cost must be a sum over pairs of views with solver='factored', "
                f"got {type(problem).__name__}: use solver='sinkhorn'."
            )
        if self.newton and not problem.complete:
            raise ValueError("newton must be None or False where some pairs of views carry no cost, got True.")
        with full_precision(problem.device):
            target, log_target = concatenated_weights(problem, weights)
            kernels = pair_kernels(problem, log_target, epsilon=epsilon, tol=tol, read_values=self.fixed_steps is None)
            ascent = _Ascent(problem, kernels, target)
            self._run(ascent, tol, newton=problem.complete if self.newton is None else self.newton)
            return ascent.solution(epsilon, tol)

    def _run(self, ascent: _Ascent, tol: float, *, newton: bool) -> None:
        last = self.fixed_steps or self.max_steps or (100 if newton else 10_000)
        every = self.check_every or (1 if ascent.target.device.type == "cpu" else 4)
        retreats = 0
        for step in range(1, last + 1):
            ascent.evaluate()
            if step == last:
                return
            if self.fixed_steps is None and step % every == 0:
                worst = float(ascent.error if ascent.error.numel() == 1 else ascent.error.max())
                # An error that is not a number comes from the input, or from a step too far and is taken back like one.
                if worst <= tol or (step == 1 and worst != worst):
                    return
                if ascent.retreat():
                    retreats += 1
                    if retreats == MOST_RETREATS:
                        return
                    continue
                retreats = 0
            ascent.newton_step() if newton else ascent.sinkhorn_step()


class _Ascent:
    """The climb on the dual: log scalings, the contraction at them, and the step that led there."""

    def __init__(self, problem: PairwiseProblem, kernels: Kernels, target: Tensor):
        self.problem = problem
        self.sizes = list(problem.sizes)
        self.target = target
        self.shift = kernels.shift
        self.contraction: CompleteContraction | GraphContraction = (
            CompleteContraction if problem.complete else GraphContraction
        )(kernels.matrices, self.sizes)
        self.dtype = kernels.matrices[problem.edges[0]].dtype
        self.target_here = target.to(self.dtype)
        start = sum(self.sizes[: self.contraction.lead])
        self.lead = slice(start, start + self.sizes[self.contraction.lead])
        self.log_scaling = kernels.start
        # The last step: where it began, its direction and length, and the dual value before it.
        self.accepted = self.step = self.length = self.height = torch.empty(0)
        self.num_steps = 0

    def scalings(self) -> Sequence[Tensor]:
        return self.log_scaling.exp().to(self.dtype).split(self.sizes, 1)

    def evaluate(self) -> None:
        """All pair marginals at the current scalings, the leading view being scaled to its weights on the way."""
        self.num_steps += 1
        scalings = self.scalings()
        self.pairs, singles, factor = self.contraction.evaluate(scalings, self.target_here[:, self.lead])
        self.log_scaling[:, self.lead].add_(factor.log_())
        self.marginals = torch.cat(singles, 1)
        self.residual = self.target_here - self.marginals
        self.error = torch.linalg.vector_norm(self.residual, ord=1, dim=1)

    def retreat(self) -> bool:
        """Go back a part of the last step where it lost ground; whether that was so for any problem."""
        # The leading marginal is met, so the mass is right and the dual value needs no contraction.
        reached = (self.log_scaling * self.target).sum(1, keepdim=True)
        lost = None if not self.accepted.numel() else ~(reached >= self.height - LOSS_ALLOWED)
        if lost is None or not bool(lost.any()):
            self.height = reached
            return False
        self.length = torch.where(lost, self.length / 4, 0.0)
        self.log_scaling = torch.where(lost, self.accepted + self.length * self.step, self.log_scaling)
        return True

    def newton_step(self) -> None:
        # Sharp couplings leave directions in which the system is nearly singular; the error damps them, and fades.
        damped = self.marginals * (1 + DAMPING * self.error.clamp(max=1.0).unsqueeze(1))
        step = solve_newton(self.pairs, damped, self._equation(), self.sizes, rtol=0.05)
        longest = torch.stack([part.abs().amax(1) for part in step.split(self.sizes, 1)]).sum(0)
        self._go(step, (LONGEST_STEP / longest).clamp_(max=1.0).unsqueeze(1))

    def _equation(self) -> Tensor:
        """What a Newton step brings to zero: log(a / m) where that is small, for it is nearly linear; else a - m."""
        ratio = (self.target_here / self.marginals).log_()
        gentle = ratio.abs().amax(1, keepdim=True) < 1
        weighted = ratio.mul_(self.marginals)
        # The null directions of the system must not see it: no view may gain mass.
        parts = zip(weighted.split(self.sizes, 1), self.marginals.split(self.sizes, 1))
        balanced = [
            part - marginal * part.sum(1, keepdim=True) / marginal.sum(1, keepdim=True) for part, marginal in parts
        ]
        return torch.where(gentle, torch.cat(balanced, 1), self.residual)

    def sinkhorn_step(self) -> None:
        """A sweep over the views where a contraction is cheap, else a mean of the k - 1 exact updates of one view each.

        The mean never loses ground because the dual is concave.
        """
        if isinstance(self.contraction, GraphContraction):
            swept = self.contraction.sweep(self.scalings(), self.target_here.split(self.sizes, 1))
            step, length = torch.cat(swept, 1).log() - self.log_scaling, 1.0
        else:
            step, length = (self.target / self.marginals).log(), 1 / (self.problem.k - 1)
        self._go(step, torch.full_like(step[:, :1], length))

    def _go(self, step: Tensor, length: Tensor) -> None:
        self.accepted, self.step, self.length = self.log_scaling, step, length
        self.log_scaling = self.accepted + length * step

    def solution(self, epsilon: float, tol: float) -> Solution:
        problem, sizes, contraction = self.problem, self.sizes, self.contraction
        log_scaling, dtype = self.log_scaling, self.dtype
        potentials = (log_scaling + self.shift).mul_(epsilon)
        value = torch.linalg.vecdot(potentials - epsilon / problem.k, self.target)

        def missing(l: int, m: int) -> Tensor:
            return contraction.pair(log_scaling.exp().to(dtype).split(sizes, 1), l, m)

        coupling = PairwiseCoupling(problem, potentials, epsilon, self.marginals, self.pairs, missing)
        return Solution(
            problem=problem,
            epsilon=epsilon,
            value=value.to(problem.dtype).view(problem.batch),
            flat_potentials=potentials,
            error=self.error.view(problem.batch),
            num_steps=self.num_steps,
            tol=tol,
            solver=Factored.name,
            coupling_form=coupling,
        )
