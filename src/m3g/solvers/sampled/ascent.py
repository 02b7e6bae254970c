"""Dual of a list, for the shared ascent: Σ_l ⟨h_l, a_l⟩ - a log mass(h), with a = Σ a_l."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g.costs import all_edges
from m3g.solvers.sampled.interfaces import Listed, ListedCoupling
from m3g.solvers.sampled.recomputed_rows import can_be_kept
from m3g.solvers.shared.ascent import advance, done, init, step
from m3g.solvers.shared.newton import conjugate_gradients, solve_newton
from m3g.solvers.shared.processes import read

# Maximum change of the exponent of a tuple in one Newton step.
LONGEST_STEP = 8.0
# Difference from the absorbed log scalings beyond which the current ones are absorbed in the tables.
LARGEST_CHANGE = 20.0
# Error, relative to half of its maximum, beyond which views are scaled one at a time.
COARSE = 0.4
# Evaluations without a smaller error after which an ascent ends, if the error is below this multiple of the rounding.
MOST_STALLED = 3
NEAR_ROUNDING = 1e3
# Total number of points up to which the Hessian is built, not only multiplied by vectors, if memory allows; and the
# bytes per entry of its blocks, the matrix and its factors in float64.
BUILT_SIZE = 2048
BUILT_BYTES = 32


@dataclass(frozen=True)
class ListPoint:
    """The coupling on a list at given log scalings (b, N) with the required mass, its marginals and the target."""

    target: Tensor
    coupling: ListedCoupling
    log_scaling: Tensor
    marginals: Tensor
    fixed: bool = False  # read no value on the host

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
        """(b,) the sum over views of the largest absolute log scaling: a bound of the exponent of a tuple."""
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
        small = size <= BUILT_SIZE and can_be_kept(BUILT_BYTES * len(right) * size**2, right.device)
        # One factorisation is a smaller graph than many multiplications, whose sufficient number is unknown.
        if not small or not (self.fixed or self.coupling.dense_pairs):
            solution, converged = conjugate_gradients(
                self.coupling.derivative,
                right,
                marginals,
                rtol=rtol,
                max_steps=20 if small or self.fixed else 60,
                fixed=self.fixed,
            )
            if converged or not small:
                return solution
        pairs = self.coupling.pairs(all_edges(len(sizes)))
        # In the dtype of the tables, which determines the ridge of the solve.
        here = marginals.to(pairs[0, 1].dtype)
        return solve_newton(pairs, here, right, sizes, rtol=rtol, fixed=self.fixed)


@dataclass(frozen=True)
class ListDual:
    """The dual on a list: see `m3g.solvers.shared.ascent.Dual`."""

    listed: Listed
    target: Tensor
    fixed: bool = False  # read no value on the host

    def evaluate(self, log_scaling: Tensor) -> ListPoint:
        """Return the coupling at these log scalings, after scaling view 0 to the required mass."""
        first = self.listed.sizes[0]
        coupling = self.listed.at(log_scaling, self.target[:, :first].sum(1, keepdim=True))
        log_scaling = torch.cat([log_scaling[:, :first] + coupling.log_factor, log_scaling[:, first:]], 1)
        return ListPoint(self.target, coupling, log_scaling, coupling.marginals(), self.fixed)

    def direction(self, point: ListPoint) -> Tensor:
        """Return a Newton step, shortened if it would change the exponent of a tuple too much.

        Far from the solution a few tuples have all the mass, and the Hessian contains no information about the others.
        The view with the largest marginal error is then scaled to its weights, which never decreases the dual.
        """
        coarse = point.error > COARSE * self.listed.k * self.target[:, : self.listed.sizes[0]].sum(1)
        if not self.fixed and not read(coarse):
            return self._newton(point)
        scaling = self._scaling(point)
        if not self.fixed and not read(~coarse):
            return scaling
        return torch.where(coarse.unsqueeze(1), scaling, self._newton(point))

    def _scaling(self, point: ListPoint) -> Tensor:
        sizes = self.listed.sizes
        errors = torch.stack([part.abs().sum(1) for part in point.residual.split(sizes, 1)], 1)
        worst = torch.nn.functional.one_hot(errors.argmax(1), len(sizes)).to(errors.dtype)
        chosen = torch.cat([worst[:, l : l + 1].expand(-1, n) for l, n in enumerate(sizes)], 1)
        ratio = self.target.log() - point.marginals.clamp_min(torch.finfo(point.marginals.dtype).tiny).log()
        return ratio.clamp(-LARGEST_CHANGE, LARGEST_CHANGE) * chosen

    def _newton(self, point: ListPoint) -> Tensor:
        move = point.solve(point.residual, rtol=0.1)
        longest = torch.stack([part.abs().amax(1) for part in move.split(self.listed.sizes, 1)]).sum(0)
        return move * (LONGEST_STEP / longest).clamp(max=1.0).unsqueeze(1)


@dataclass(frozen=True)
class Ascended:
    """Result of an ascent.

    Attributes:
        point: the last point.
        possible_gain: (b,) estimated further increase of the dual, in units of epsilon: the gain of the last step times
            the square of the ratio of the errors after and before it.
        num_steps: number of evaluations.
    """

    point: ListPoint
    possible_gain: Tensor
    num_steps: int


def ascend_on_list(
    listed: Listed,
    target: Tensor,
    log_scaling: Tensor,
    *,
    tol: float,
    max_steps: int,
    rounding: float = 0.0,
    further: int = 0,
) -> Ascended:
    """Take Newton steps until the marginals are within tol, then `further` ones while they halve the error.

    If the error is near the relative `rounding` of the tables, the ascent also ends when it stops decreasing.
    """
    dual = ListDual(listed.based(log_scaling), target)
    state = init(dual, log_scaling)
    before, best, stalled = state.current, torch.inf, 0
    while done(state, tol=tol, max_steps=max_steps) is None and stalled < MOST_STALLED:
        worst, _ = state.observed
        stalled = stalled + 1 if best * 0.9 < worst < NEAR_ROUNDING * rounding else 0
        best = min(best, worst)
        dual = _in_range(dual, state.current)
        before, state = state.current, step(dual, state, loss_allowed=1e-6)
    point = state.current
    for _ in range(further):
        dual = _in_range(dual, state.current)
        state = advance(dual, state)
        if not read(state.current.error < point.error / 2):
            break
        before, point = point, state.current
    return Ascended(point, _possible_gain(before, point), state.num_steps)


def _in_range(dual: ListDual, point: ListPoint) -> ListDual:
    """Return the dual with the log scalings of a point absorbed in its tables, if the absorbed ones differ too much.

    The first point is checked too: scaling to the mass may have moved view 0 beyond the range of float32.
    """
    change = read((point.log_scaling - dual.listed.base).abs())
    return dual if change <= LARGEST_CHANGE else ListDual(dual.listed.based(point.log_scaling), dual.target)


def _possible_gain(before: ListPoint, after: ListPoint) -> Tensor:
    if before is after:  # no step was taken: half of the predicted gain of a Newton step
        return (after.residual * after.solve(after.residual, rtol=0.1)).sum(1).abs() / 2
    part = (after.error / before.error.clamp_min(torch.finfo(after.error.dtype).tiny)).clamp(max=1.0)
    return (after.height - before.height).abs().squeeze(1) * part.square()
