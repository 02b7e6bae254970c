"""Dual of the regularised problem: the marginals at given log scalings, and the next step.

A contraction computes the marginals of a coupling from its kernel and its scalings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from m3g.costs.coupling import Edge
from m3g.solvers.shared.newton import solve_newton
from m3g.solvers.shared.processes import Shard

# Maximum change of a log scaling in a Newton step.
MAX_STEP = 3.0
# Damping of the Newton system: its diagonal is multiplied by 1 + DAMPING · error.
DAMPING = 0.03


class Contracted(NamedTuple):
    """Marginals of a coupling whose leading view is scaled to its weights.

    Attributes:
        pairs: pair marginals {(l, m): (b, n_l, n_m)}, l < m, of all pairs or of those that the contraction computes.
        others: (b, N - n), marginals of all views except the leading one, concatenated.
        lead: (b, n), the new scaling of the leading view, or its logarithm (`Contraction.in_logs`).
    """

    pairs: dict[Edge, Tensor]
    others: Tensor
    lead: Tensor


class Contraction(ABC):
    """Computation of the marginals of a coupling at given scalings.

    Attributes:
        sizes: numbers of points n_1, …, n_k.
        lead: index of the leading view, whose scaling `evaluate` computes.
        in_logs: whether scalings are passed and returned as logarithms.
        shard: the slab of this process, to which all results are restricted; None for the full coupling.
        pairs_shard: the slab of this process, if only the pair marginals of `evaluate` are restricted to it; otherwise
            None.
    """

    sizes: list[int]
    lead: int = 0
    in_logs: bool = False
    shard: Shard | None = None
    pairs_shard: Shard | None = None

    @abstractmethod
    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        """Return the marginals of the coupling at the scalings u_l, k tensors (b, n_l).

        The scaling of the leading view is replaced, so that its marginal equals `target` (b, n).
        """

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        """Return a pair marginal that `evaluate` does not compute."""
        raise AssertionError("evaluate returns every pair")

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the scalings after a sweep of Algorithm 1; None if this contraction provides no sweep."""
        return None


@dataclass(frozen=True)
class Marginals:
    """Quantities at log scalings (b, N) at which the marginal of the leading view equals its weights.

    The mass of the coupling is then exact, so the dual value is ⟨log scaling, weights⟩ up to a constant.

    Attributes:
        log_scaling: (b, N).
        target: (b, N), the weights.
        pairs: pair marginals {(l, m): (b, n_l, n_m)}.
        others: (b, N - n), marginals of all views except the leading one, in the dtype of the kernels.
        error: (b,), the marginal error Σ_l |m_l(P) - a_l|_1.
    """

    log_scaling: Tensor
    target: Tensor
    pairs: dict[Edge, Tensor]
    others: Tensor
    error: Tensor

    @property
    def height(self) -> Tensor:
        return (self.log_scaling * self.target).sum(1, keepdim=True)


@dataclass(frozen=True)
class MarginalDual:
    """Dual Σ_l ⟨h_l, a_l⟩ of log scalings h (b, N).

    `evaluate` scales the leading view to its weights, so that the mass of the coupling is exact and the dual has no
    further term that depends on h.

    Attributes:
        contraction: computes the marginals.
        target: (b, N), the weights a, in the dtype of the log scalings.
        kernel_target: (b, N), the weights in the dtype of the kernel.
        lead_target, other_targets: the entries of `kernel_target` for the leading view, and for all others.
        newton: whether to take Newton steps instead of Sinkhorn updates.
        fixed: whether no value may be read on the host.
    """

    contraction: Contraction
    target: Tensor
    kernel_target: Tensor
    lead_target: Tensor
    other_targets: Tensor
    newton: bool
    fixed: bool

    @staticmethod
    def of(contraction: Contraction, target: Tensor, dtype: torch.dtype, newton: bool, fixed: bool) -> MarginalDual:
        """Return the dual for weights `target` (b, N) and a contraction in the given dtype."""
        kernel_target = target if target.dtype == dtype else target.to(dtype)
        before, n = sum(contraction.sizes[: contraction.lead]), contraction.sizes[contraction.lead]
        first, lead, last = kernel_target.split([before, n, kernel_target.shape[1] - before - n], 1)
        others = last if before == 0 else torch.cat([first, last], 1)
        return MarginalDual(contraction, target, kernel_target, lead, others, newton, fixed)

    def scalings(self, log_scaling: Tensor) -> tuple[Tensor, ...]:
        """Return the argument of `Contraction.evaluate`: k scalings u_l (b, n_l), or their logarithms."""
        scaling = log_scaling if self.contraction.in_logs else log_scaling.exp()
        if scaling.dtype != self.kernel_target.dtype:
            scaling = scaling.to(self.kernel_target.dtype)
        by_view: tuple[Tensor, ...] = scaling.split(self.contraction.sizes, 1)
        return by_view

    def evaluate(self, log_scaling: Tensor) -> Marginals:
        contraction = self.contraction
        contracted = contraction.evaluate(self.scalings(log_scaling), self.lead_target)
        lead = contracted.lead if contraction.in_logs else contracted.lead.log()
        lead = lead if lead.dtype == log_scaling.dtype else lead.to(log_scaling.dtype)
        return self.from_marginals(self._with_lead(log_scaling, lead), contracted.pairs, contracted.others)

    def from_marginals(self, log_scaling: Tensor, pairs: dict[Edge, Tensor], others: Tensor) -> Marginals:
        """Return the result of `evaluate` from marginals that were already computed at these log scalings."""
        error = torch.linalg.vector_norm(self.other_targets - others, ord=1, dim=1)
        return Marginals(log_scaling, self.target, pairs, others, error)

    def _with_lead(self, vector: Tensor, lead: Tensor) -> Tensor:
        """Return (b, N) with the part of the leading view replaced."""
        parts = list(vector.split(self.contraction.sizes, 1))
        parts[self.contraction.lead] = lead
        return torch.cat(parts, 1)

    def marginals(self, point: Marginals) -> Tensor:
        """Return the marginals of all views: (b, N)."""
        before = sum(self.contraction.sizes[: self.contraction.lead])
        parts = [self.lead_target, point.others]
        if before:
            first, last = point.others.split([before, point.others.shape[1] - before], 1)
            parts = [first, self.lead_target, last]
        return torch.cat(parts, 1)

    def direction(self, point: Marginals, stretch: float = 1.0) -> Tensor:
        return self._newton_step(point, stretch) if self.newton else self._sinkhorn_step(point)

    def shortened(self, point: Marginals, move: Tensor) -> Tensor:
        """Return a quarter of the step, or a mean of Sinkhorn updates if the dual decreases in its direction.

        The right-hand side of the Newton system is the gradient only to first order. If the marginals are far from the
        weights, the solution may therefore be a direction of descent, for steps of any length.
        """
        residual = self.kernel_target - self.marginals(point)
        slope = (residual * move).sum(1, keepdim=True)
        return torch.where(slope > 0, move / 4, self._mean_update(point))

    def _limited_marginals(self, point: Marginals) -> Tensor:
        """Return the marginals, limited from below if the contraction computes in logarithms.

        A marginal that is computed in logarithms may underflow to 0. The limit keeps the step of its point finite, so
        that this point does not shorten the steps of all others.
        """
        m = self.marginals(point)
        return torch.maximum(m, self.kernel_target * math.exp(-MAX_STEP)) if self.contraction.in_logs else m

    def _newton_step(self, point: Marginals, stretch: float) -> Tensor:
        """Return a damped Newton step (b, N) that changes no log scaling by more than `MAX_STEP` times `stretch`."""
        # At a small epsilon, the system is nearly singular in some directions. Damping proportional to the error limits
        # the step in these directions and vanishes at the solution.
        m = self._limited_marginals(point)
        damped = torch.addcmul(m, m, point.error.unsqueeze(1), value=DAMPING)
        # m log(a / m) equals a - m to first order, but log(a / m) is closer to a linear function of the log scalings.
        right = (self.kernel_target / m).log_().mul_(m)
        if self.contraction.in_logs:
            right = right - m * self._view_excess(right)
        step = solve_newton(
            point.pairs,
            damped,
            right,
            self.contraction.sizes,
            rtol=0.05,
            dtype=m.dtype,
            fixed=self.fixed,
            pairs_shard=self.contraction.pairs_shard,
        )
        limit = MAX_STEP * stretch
        longest: Tensor = torch.linalg.vector_norm(step, ord=torch.inf, dim=1, keepdim=True).clamp(min=limit)
        step = (step / longest).mul_(limit)
        return step if step.dtype == point.log_scaling.dtype else step.to(point.log_scaling.dtype)

    def _view_excess(self, right: Tensor) -> Tensor:
        """Return, for every entry (b, N), the sum of the right-hand side over its view, minus the mean of these sums.

        The right-hand side of a solvable system has the same sum in every view. If the sums differ, the step is long
        in the null directions of the Newton matrix, which shift constants between views and have no effect.
        """
        sums = [part.sum(1, keepdim=True) for part in right.split(self.contraction.sizes, 1)]
        mean = torch.stack(sums).mean(0)
        return torch.cat([(each - mean).expand(-1, n) for each, n in zip(sums, self.contraction.sizes)], 1)

    def _sinkhorn_step(self, point: Marginals) -> Tensor:
        """Return the change of the log scalings in one sweep of Algorithm 1.

        If the contraction provides no sweep, return the mean of k - 1 updates, each of which scales one view to its
        weights. Their mean never decreases the dual, because the dual is concave.
        """
        targets = self.kernel_target.split(self.contraction.sizes, 1)
        swept = self.contraction.sweep(self.scalings(point.log_scaling), targets)
        if swept is not None:
            return torch.cat(swept, 1).log().to(point.log_scaling.dtype) - point.log_scaling
        return self._mean_update(point)

    def _mean_update(self, point: Marginals) -> Tensor:
        """Return the mean of k - 1 updates, each of which scales one view to its weights."""
        ratio = self.kernel_target / self._limited_marginals(point)
        return ratio.log().to(point.log_scaling.dtype) / (len(self.contraction.sizes) - 1)
