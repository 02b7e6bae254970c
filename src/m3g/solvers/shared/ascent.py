"""Damped ascent on the dual, shared by all solvers: `init`, `step` and `done` over an explicit, immutable state.

A solver provides a `Dual`: `evaluate` computes the marginals at given log scalings, `direction` the next step. All
functions are pure. `ascend` is the loop:

    state = init(dual, log_scaling)
    while (result := done(state, tol=tol, max_steps=max_steps)) is None:
        state = step(dual, state)

`step` first checks whether the last step decreased the dual. If it did, a quarter of that step is tried; otherwise the
next step is taken. `fixed_ascent` takes a fixed number of steps without reading values on the host and without
backtracking, so that it compiles to one graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from m3g.solvers.shared.processes import read, read_two
from m3g.solvers.shared.result import Result

# Maximum number of consecutive backtracking steps.
MOST_SHORTENINGS = 12


class Evaluated(Protocol):
    """Quantities at a point of the ascent, for each of b problems.

    Attributes:
        log_scaling: (b, N) the point; `evaluate` may have corrected its mass.
        error: (b,) Σ_l |m_l(P) - a_l|_1.
        height: (b, 1) the dual value in units of epsilon, up to a constant.
    """

    @property
    def log_scaling(self) -> Tensor: ...
    @property
    def error(self) -> Tensor: ...
    @property
    def height(self) -> Tensor: ...


E = TypeVar("E", bound=Evaluated)


class Dual(Protocol[E]):
    """Concave function of the log scalings."""

    def evaluate(self, log_scaling: Tensor) -> E:
        """Evaluate a point (b, N)."""

    def direction(self, point: E) -> Tensor:
        """Return the next step (b, N), already damped."""


@dataclass(frozen=True)
class AscentState(Generic[E]):
    """State of an ascent.

    Attributes:
        current: quantities at the current point.
        start, move: quantities at the start of the last step, and that step; None before the first step.
        num_steps: number of evaluations.
        shortenings: number of times the last step has been shortened.
    """

    current: E
    start: E | None = None
    move: Tensor | None = None
    num_steps: int = 1
    shortenings: int = 0

    @cached_property
    def observed(self) -> tuple[float, float]:
        """The largest error, and the largest decrease of the dual in the last step, read on the host."""
        if self.start is None:
            return read(self.current.error), -math.inf
        return read_two(self.current.error, (self.start.height - self.current.height).squeeze(1))


def init(dual: Dual[E], log_scaling: Tensor) -> AscentState[E]:
    """Return the state at the first point."""
    return AscentState(dual.evaluate(log_scaling))


def step(dual: Dual[E], state: AscentState[E], *, loss_allowed: float) -> AscentState[E]:
    """Evaluate once more: after the next step, or after a part of the last one if that decreased the dual.

    `loss_allowed` is the tolerated decrease of the dual in a step, in units of epsilon.
    """
    current = state.current
    decreased = not state.observed[1] <= loss_allowed  # also for NaN
    if state.start is not None and state.move is not None and decreased:
        worse = ~(state.start.height - current.height <= loss_allowed)
        move = torch.where(worse, state.move / 4, 0.0)
        shortened = torch.where(worse, state.start.log_scaling + move, current.log_scaling)
        return replace(
            state,
            current=dual.evaluate(shortened),
            move=move,
            num_steps=state.num_steps + 1,
            shortenings=state.shortenings + 1,
        )
    return advance(dual, state)


def advance(dual: Dual[E], state: AscentState[E]) -> AscentState[E]:
    """Take the next step without checking the last one: no value is read on the host."""
    start = state.current
    move = dual.direction(start)
    return AscentState(dual.evaluate(start.log_scaling + move), start, move, state.num_steps + 1)


def done(state: AscentState[E], *, tol: float, max_steps: int) -> Result | None:
    """Return why the ascent ends here, or None if it continues."""
    worst, _ = state.observed
    if worst <= tol:
        return Result.CONVERGED
    finite = math.isfinite(worst)
    # A NaN error is due to the input, or to a step that is too long and will be backtracked.
    if not finite and state.num_steps == 1:
        return Result.OUT_OF_RANGE
    if state.num_steps >= max_steps or state.shortenings >= MOST_SHORTENINGS:
        finite = finite and bool(torch.isfinite(state.current.log_scaling).all())  # a scaling may underflow to 0
        return Result.OUT_OF_STEPS if finite else Result.OUT_OF_RANGE
    return None


def ascend(
    dual: Dual[E],
    state: AscentState[E],
    *,
    tol: float,
    max_steps: int,
    loss_allowed: float = 1e-3,
    check_every: int = 1,
) -> tuple[AscentState[E], Result]:
    """Step until every problem of the batch has an error of at most `tol`, or for `max_steps` evaluations.

    With `check_every` > 1 the host reads the error only once in so many steps, which reduces synchronisation.
    """
    while (result := done(state, tol=tol, max_steps=max_steps)) is None:
        state = step(dual, state, loss_allowed=loss_allowed)
        for _ in range(min(check_every, max_steps - state.num_steps + 1) - 1):
            state = advance(dual, state)
    return state, result


def fixed_ascent(dual: Dual[E], log_scaling: Tensor, num_steps: int) -> AscentState[E]:
    """Evaluate `num_steps` times without reading values on the host and without backtracking."""
    state = init(dual, log_scaling)
    for _ in range(num_steps - 1):
        state = advance(dual, state)
    return state
