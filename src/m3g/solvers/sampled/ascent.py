"""Newton ascent on the dual of a sampled kernel.

The dual is Σ_l ⟨h_l, a_l⟩ - M log mass(h), with log scalings h, weights a_l, their sum M in each view, and the mass of
the coupling at h. Adding a constant to h_l does not change it. The loop and its backtracking are those of
`m3g.solvers.shared.ascent`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import all_edges
from m3g.solvers.sampled.interfaces import SampledCoupling, SampledKernel
from m3g.solvers.sampled.recomputed_rows import can_be_stored
from m3g.solvers.shared.ascent import advance, done, init, step
from m3g.solvers.shared.newton import conjugate_gradients, solve_newton
from m3g.solvers.shared.processes import read

# Maximum change of the exponent of a tuple in one Newton step.
MAX_STEP = 8.0
# Maximum difference between the log scalings and those contained in the tables of the kernel (`SampledKernel.base`).
MAX_LOG_CHANGE = 20.0
# If the marginal error, which is at most 2 k · mass, exceeds COARSE · k · mass, one view is scaled to its weights, and
# no Newton step is taken.
COARSE = 0.4
# An ascent ends after MAX_STALLED successive evaluations that decrease the error by less than a tenth, if the error is
# below NEAR_ROUNDING times the rounding error.
MAX_STALLED = 3
NEAR_ROUNDING = 1e3
# Number of points N up to which the Hessian may be built as a matrix, and the bytes per entry of this matrix, its
# blocks and its factors in float64. Larger Hessians are only multiplied by vectors.
DENSE_HESSIAN_SIZE = 2048
DENSE_HESSIAN_BYTES = 32


@dataclass(frozen=True)
class SampledPoint:
    """Coupling of a sampled kernel at log scalings at which it has the required mass.

    Attributes:
        target: (b, N), the weights.
        coupling: the coupling.
        log_scaling: (b, N).
        marginals: (b, N), the marginals of the coupling.
        fixed: whether no value may be read on the host.
    """

    target: Tensor
    coupling: SampledCoupling
    log_scaling: Tensor
    marginals: Tensor
    fixed: bool = False

    @property
    def residual(self) -> Tensor:
        return self.target - self.marginals

    @property
    def error(self) -> Tensor:
        return self.residual.abs().sum(1)

    @property
    def height(self) -> Tensor:
        return (self.log_scaling * self.target).sum(1, keepdim=True)

    @property
    def reach(self) -> Tensor:
        """Upper bound on the absolute value of Σ_l h_l[t_l] over all tuples t: (b,)."""
        return torch.stack([part.abs().amax(1) for part in self.log_scaling.split(self.sizes, 1)]).sum(0)

    @property
    def sizes(self) -> list[int]:
        return list(self.coupling.sizes)

    def solve(self, right: Tensor, *, rtol: float) -> Tensor:
        """Solve H x = right (b, N), where H is the derivative of the marginals with respect to the log scalings."""
        sizes, size = self.sizes, right.shape[1]
        marginals = self.marginals.clamp_min(1e-12 / size)
        if not self.fixed and not math.isfinite(read(right.abs())):
            return torch.full_like(right, torch.nan)
        small = size <= DENSE_HESSIAN_SIZE and can_be_stored(DENSE_HESSIAN_BYTES * len(right) * size**2, right.device)
        # In a compiled graph, one factorisation replaces many multiplications whose required number is unknown.
        if not small or not (self.fixed or self.coupling.dense_pairs):
            solution, converged = conjugate_gradients(
                self.coupling.hessian_product,
                right,
                marginals,
                rtol=rtol,
                max_steps=20 if small or self.fixed else 60,
                fixed=self.fixed,
            )
            if converged or not small:
                return solution
        pairs = self.coupling.pairs(all_edges(len(sizes)))
        # The dtype of the pair marginals determines the ridge of the Newton system.
        marginals = marginals.to(pairs[0, 1].dtype)
        return solve_newton(pairs, marginals, right, sizes, rtol=rtol, fixed=self.fixed)


@dataclass(frozen=True)
class SampledDual:
    """Dual of a sampled kernel; see `m3g.solvers.shared.ascent.Dual` for the interface."""

    kernel: SampledKernel
    target: Tensor
    fixed: bool = False  # read no value on the host

    def evaluate(self, log_scaling: Tensor) -> SampledPoint:
        """Return the coupling at these log scalings, with view 0 scaled so that the coupling has the required mass."""
        first = self.kernel.sizes[0]
        coupling = self.kernel.coupling_at(log_scaling, self.target[:, :first].sum(1, keepdim=True))
        log_scaling = torch.cat([log_scaling[:, :first] + coupling.log_factor, log_scaling[:, first:]], 1)
        return SampledPoint(self.target, coupling, log_scaling, coupling.marginals(), self.fixed)

    def direction(self, point: SampledPoint, stretch: float = 1.0) -> Tensor:
        """Return a Newton step, shortened if it changes the exponent of a tuple by more than `MAX_STEP`.

        Far from the solution, a few tuples have nearly all the mass, and the Hessian contains no information about the
        others. The view with the largest marginal error is then scaled to its weights, which never decreases the dual.
        `stretch` is not used, because the samples are relevant only near the potentials for which they were drawn.
        """
        coarse = point.error > COARSE * self.kernel.k * self.target[:, : self.kernel.sizes[0]].sum(1)
        if not self.fixed and not read(coarse):
            return self._newton_step(point)
        scaling = self._scaling_step(point)
        if not self.fixed and not read(~coarse):
            return scaling
        return torch.where(coarse.unsqueeze(1), scaling, self._newton_step(point))

    def shortened(self, point: SampledPoint, move: Tensor) -> Tensor:
        return move / 4

    def _scaling_step(self, point: SampledPoint) -> Tensor:
        """Return the step (b, N) that scales the view with the largest marginal error to its weights."""
        sizes = self.kernel.sizes
        errors = torch.stack([part.abs().sum(1) for part in point.residual.split(sizes, 1)], 1)
        worst = torch.nn.functional.one_hot(errors.argmax(1), len(sizes)).to(errors.dtype)
        chosen = torch.cat([worst[:, l : l + 1].expand(-1, n) for l, n in enumerate(sizes)], 1)
        ratio = self.target.log() - point.marginals.clamp_min(torch.finfo(point.marginals.dtype).tiny).log()
        return ratio.clamp(-MAX_LOG_CHANGE, MAX_LOG_CHANGE) * chosen

    def _newton_step(self, point: SampledPoint) -> Tensor:
        move = point.solve(point.residual, rtol=0.1)
        longest = torch.stack([part.abs().amax(1) for part in move.split(self.kernel.sizes, 1)]).sum(0)
        return move * (MAX_STEP / longest).clamp(max=1.0).unsqueeze(1)


@dataclass(frozen=True)
class AscentResult:
    """Result of `ascend_dual`.

    Attributes:
        point: the last accepted point.
        possible_gain: (b,), estimated further increase of the dual, in units of epsilon: the gain of the last step
            times the squared ratio of the errors after and before it or, if no step was taken, the predicted gain of a
            Newton step.
        num_steps: number of evaluations.
    """

    point: SampledPoint
    possible_gain: Tensor
    num_steps: int


def ascend_dual(
    kernel: SampledKernel,
    target: Tensor,
    log_scaling: Tensor,
    *,
    tol: float,
    max_steps: int,
    rounding: float = 0.0,
    further: int = 0,
) -> AscentResult:
    """Take steps until the marginal error is at most `tol`, with at most `max_steps` evaluations of the dual.

    Up to `further` additional steps follow. The first one that does not more than halve the error is discarded and ends
    them. The ascent also ends if the error stops decreasing near the relative rounding error `rounding` of the tables.
    """
    dual = SampledDual(kernel.with_base(log_scaling), target)
    state = init(dual, log_scaling)
    before, best, stalled = state.current, torch.inf, 0
    while done(state, tol=tol, max_steps=max_steps) is None and stalled < MAX_STALLED:
        worst, _ = state.observed
        stalled = stalled + 1 if best * 0.9 < worst < NEAR_ROUNDING * rounding else 0
        best = min(best, worst)
        dual = _rebased(dual, state.current)
        before, state = state.current, step(dual, state, max_decrease=1e-6)
    point = state.current
    for _ in range(further):
        dual = _rebased(dual, state.current)
        state = advance(dual, state)
        if not read(state.current.error < point.error / 2):
            break
        before, point = point, state.current
    return AscentResult(point, _possible_gain(before, point), state.num_steps)


def _rebased(dual: SampledDual, point: SampledPoint) -> SampledDual:
    """Return the dual; if the log scalings of a point differ too much from `kernel.base`, they become its base.

    This may be required at the first point already, because the factor that corrects its mass may exceed the range of
    float32.
    """
    change = read((point.log_scaling - dual.kernel.base).abs())
    return dual if change <= MAX_LOG_CHANGE else SampledDual(dual.kernel.with_base(point.log_scaling), dual.target)


def _possible_gain(before: SampledPoint, after: SampledPoint) -> Tensor:
    if before is after:  # no step was taken: predict the gain of a Newton step from the quadratic model
        return (after.residual * after.solve(after.residual, rtol=0.1)).sum(1).abs() / 2
    ratio = (after.error / before.error.clamp_min(torch.finfo(after.error.dtype).tiny)).clamp(max=1.0)
    return (after.height - before.height).abs().squeeze(1) * ratio.square()
