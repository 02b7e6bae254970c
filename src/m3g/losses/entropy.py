"""Weight of the entropy in the regularised cost, given as epsilon or as a temperature."""

from __future__ import annotations

from m3g import _checks
from m3g.costs import Cost

# Chosen by `python -m benchmarks.temperature`; see docs/choose_epsilon.md.
DEFAULT_TEMPERATURE = 0.1
# Default for costs without a slope, for which no temperature is defined: functions, and nonlinear ground costs.
DEFAULT_EPSILON = 0.05


class Entropy:
    """Epsilon of a solve, given directly or as a temperature; constant or on a geometric schedule.

    Args:
        epsilon, final_epsilon: first and last value, in units of the cost. Without a last value, epsilon is constant.
        temperature, final_temperature: first and last value of epsilon divided by `Cost.slope(k)`, in a unit that is
            the same for every k. Set at most one of epsilon and temperature. The default is a temperature of 0.1, or
            an epsilon of 0.05 if the cost has no slope or only `final_epsilon` is given.

    Example:
        >>> from m3g.costs import CircularVariance
        >>> [round(Entropy(temperature=0.1).epsilon_of(CircularVariance(), k), 4) for k in (2, 3, 4)]
        [0.05, 0.0444, 0.0375]
    """

    def __init__(
        self,
        epsilon: float | None = None,
        temperature: float | None = None,
        final_epsilon: float | None = None,
        final_temperature: float | None = None,
    ) -> None:
        if epsilon is not None and temperature is not None:
            raise ValueError(f"temperature must be None if epsilon is given, got {temperature!r} and {epsilon!r}.")
        self.is_default = epsilon is None and temperature is None
        if self.is_default:
            if final_epsilon is not None:
                epsilon = DEFAULT_EPSILON
            else:
                temperature = DEFAULT_TEMPERATURE
        self.in_epsilon = temperature is None
        unit, other = ("epsilon", "temperature") if self.in_epsilon else ("temperature", "epsilon")
        start, end = (epsilon, final_epsilon) if self.in_epsilon else (temperature, final_temperature)
        if (final_temperature if self.in_epsilon else final_epsilon) is not None:
            raise ValueError(f"final_{other} must be None if {unit} or final_{unit} is given: use only final_{unit}.")
        assert start is not None
        if end is not None:
            end = _checks.positive(f"final_{unit}", end)
        if end is not None or not self.in_epsilon:
            start = _checks.positive(unit, start)
        self.first = self.value = start
        self.final = end

    @property
    def scheduled(self) -> bool:
        """Whether the value changes during training."""
        return self.final is not None

    def set_progress(self, progress: float) -> None:
        """Set the value at a progress from 0 (first value) to 1 (last value)."""
        progress = _checks.finite("progress", progress)
        if self.final is not None:
            self.value = self.first * (self.final / self.first) ** min(max(progress, 0.0), 1.0)

    def epsilon_of(self, cost: Cost, k: int) -> float:
        """Return the current epsilon for this cost and k views."""
        if self.in_epsilon:
            return self.value
        slope = cost.slope(k)
        if slope is not None:
            return self.value * slope
        if self.is_default and not self.scheduled:
            return DEFAULT_EPSILON
        prefix = "final_" if self.is_default else ""
        raise ValueError(
            f"{prefix}temperature must be None for the cost {cost!r}, which has no slope: use {prefix}epsilon."
        )

    def __repr__(self) -> str:
        return f"{'epsilon' if self.in_epsilon else 'temperature'}={self.value}"
