"""Damped ascent on the dual with backtracking, shared by the solvers.

A solver provides a `Dual`: `evaluate` computes the marginals at given log scalings, and `direction` the next step. The
loop `ascend` consists of pure functions of an immutable state:

    state = init(dual, log_scaling)
    while (result := done(state, tol=tol, max_steps=max_steps)) is None:
        state = step(dual, state, max_decrease=1e-3)

If the last step decreased the dual, `step` replaces it, usually by a quarter of that step (backtracking,
:cite:`nocedal2006`); otherwise it takes the next step. `fixed_ascent` takes a fixed number of steps without
backtracking and without reading values on the host, so that it compiles to one graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from m3g.solvers.shared.processes import read, read_two
from m3g.solvers.shared.solver import Result

# Maximum number of consecutive backtracking steps.
MAX_SHORTENINGS = 12
# Number of evaluations after which the maximum length of a step is doubled at every step; shortening a step resets it.
# A solve of this many evaluations started far from the solution, for example because the weights have very different
# magnitudes.
MANY_STEPS = 12


class Evaluated(Protocol):
    """Quantities at a point of the ascent, for each of b problems with N points in all views together.

    Attributes:
        log_scaling: (b, N), the point; `evaluate` may have shifted it, so that the coupling has the required mass.
        error: (b,), the marginal error Σ_l |m_l(P) - a_l|_1.
        height: (b, 1), the dual value in units of epsilon, up to a constant.
    """

    @property
    def log_scaling(self) -> Tensor: ...
    @property
    def error(self) -> Tensor: ...
    @property
    def height(self) -> Tensor: ...


E = TypeVar("E", bound=Evaluated)


class Dual(Protocol[E]):
    """Dual function: a concave function of the log scalings."""

    def evaluate(self, log_scaling: Tensor) -> E:
        """Return the quantities at the log scalings (b, N)."""

    def direction(self, point: E, stretch: float = 1.0) -> Tensor:
        """Return the next step (b, N), including damping; limits of its length are multiplied by `stretch`."""

    def shortened(self, point: E, move: Tensor) -> Tensor:
        """Return the replacement (b, N) for a step from this point that decreased the dual."""


@dataclass(frozen=True)
class AscentState(Generic[E]):
    """State of an ascent.

    Attributes:
        current: quantities at the current point.
        start: quantities at the point where the last step started; None before the first step.
        move: the last step (b, N); None before the first step.
        num_steps: number of evaluations.
        shortenings: number of times the last step has been shortened.
        stretch: factor by which the limit of the length of the last step was multiplied.
    """

    current: E
    start: E | None = None
    move: Tensor | None = None
    num_steps: int = 1
    shortenings: int = 0
    stretch: float = 1.0

    @cached_property
    def observed(self) -> tuple[float, float]:
        """The largest error and the largest decrease of the dual in the last step over the batch, read on the host."""
        if self.start is None:
            return read(self.current.error), -math.inf
        return read_two(self.current.error, (self.start.height - self.current.height).squeeze(1))


def init(dual: Dual[E], log_scaling: Tensor) -> AscentState[E]:
    """Return the state at the first point."""
    return AscentState(dual.evaluate(log_scaling))


def step(dual: Dual[E], state: AscentState[E], *, max_decrease: float) -> AscentState[E]:
    """Take the next step, or shorten the last one if it decreased the dual by more than `max_decrease`.

    `max_decrease` is in units of epsilon. Steps are shortened only for the problems of the batch whose dual decreased.
    """
    current = state.current
    decreased = not state.observed[1] <= max_decrease  # True for NaN
    if state.start is not None and state.move is not None and decreased:
        worse = ~(state.start.height - current.height <= max_decrease)
        move = torch.where(worse, dual.shortened(state.start, state.move), 0.0)
        shortened = torch.where(worse, state.start.log_scaling + move, current.log_scaling)
        return replace(
            state,
            current=dual.evaluate(shortened),
            move=move,
            num_steps=state.num_steps + 1,
            shortenings=state.shortenings + 1,
        )
    stretch = 2 * state.stretch if state.num_steps >= MANY_STEPS and state.shortenings == 0 else 1.0
    return advance(dual, state, stretch)


def advance(dual: Dual[E], state: AscentState[E], stretch: float = 1.0) -> AscentState[E]:
    """Take the next step without checking the last one, so that its error and dual are not read on the host."""
    start = state.current
    move = dual.direction(start, stretch)
    return AscentState(dual.evaluate(start.log_scaling + move), start, move, state.num_steps + 1, stretch=stretch)


def done(state: AscentState[E], *, tol: float, max_steps: int) -> Result | None:
    """Return how the ascent ended, or None if it continues."""
    worst, _ = state.observed
    if worst <= tol:
        return Result.CONVERGED
    finite = math.isfinite(worst)
    # A NaN error at the first point is due to the input; later it is due to a long step, which is backtracked.
    if not finite and state.num_steps == 1:
        return Result.OUT_OF_RANGE
    if state.num_steps >= max_steps or state.shortenings >= MAX_SHORTENINGS:
        finite = finite and bool(torch.isfinite(state.current.log_scaling).all())  # a scaling may underflow to 0
        return Result.OUT_OF_STEPS if finite else Result.OUT_OF_RANGE
    return None


def ascend(
    dual: Dual[E],
    state: AscentState[E],
    *,
    tol: float,
    max_steps: int,
    max_decrease: float = 1e-3,
    check_every: int = 1,
) -> tuple[AscentState[E], Result]:
    """Take steps until `done` returns a result, and return the last state and this result.

    The error is read on the host every `check_every` steps; a larger number reduces synchronisation.
    """
    while (result := done(state, tol=tol, max_steps=max_steps)) is None:
        state = step(dual, state, max_decrease=max_decrease)
        for _ in range(min(check_every, max_steps - state.num_steps + 1) - 1):
            state = advance(dual, state)
    return state, result


def fixed_ascent(dual: Dual[E], log_scaling: Tensor, num_steps: int) -> AscentState[E]:
    """Return the state after `num_steps` evaluations, without reading values on the host and without backtracking."""
    state = init(dual, log_scaling)
    for _ in range(num_steps - 1):
        state = advance(dual, state)
    return state
