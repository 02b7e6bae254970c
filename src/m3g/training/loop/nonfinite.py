"""The error of a training whose numbers are no longer finite."""

from __future__ import annotations

from torch import Tensor

SHOWN_ROWS = 10  # of a batch, in a message


class NonFiniteLoss(ValueError):
    """The loss or its gradient is no longer a number."""

    @classmethod
    def at(cls, step: int, what: str, rows: Tensor | None, *, rate: float, peak: float) -> NonFiniteLoss:
        """The error of a step: what happened, what to change, and on which rows.

        Args:
            step: optimiser steps done; before the first one only the data can be the cause.
            what: the quantity that is not finite.
            rows: the indices of the batch.
            rate, peak: the learning rate of the step and the setting `optim.learning_rate`.
        """
        indices = "unknown" if rows is None else str(rows[:SHOWN_ROWS].tolist())
        more = "" if rows is None or len(rows) <= SHOWN_ROWS else f" and {len(rows) - SHOWN_ROWS} more"
        advice = (
            "look for very large values in the data, before the first step there is nothing else"
            if step == 0
            else f"the learning rate is {rate:.3g}: try a smaller optim.learning_rate than {peak:g}, "
            "then look at the data"
        )
        return cls(f"training stopped at step {step}: {what}; {advice}, rows with the indices {indices}{more}")
