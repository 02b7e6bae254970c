"""Error for non-finite numbers in training."""

from __future__ import annotations

from torch import Tensor

SHOWN_ROWS = 10  # maximum number of row indices in a message


class NonFiniteLoss(ValueError):
    """The embeddings, the loss or its gradient are not finite."""

    @classmethod
    def at(cls, step: int, what: str, rows: Tensor | None, *, rate: float, peak: float) -> NonFiniteLoss:
        """Return the error of a step: cause, advice, and the rows of the batch.

        Args:
            step: number of finished optimiser steps; if it is 0, the weights are the initial ones.
            what: a clause that names the quantity that is not finite.
            rows: the row numbers of the batch.
            rate, peak: the learning rate of the step and the setting `optim.learning_rate`.
        """
        indices = "unknown" if rows is None else str(rows[:SHOWN_ROWS].tolist())
        more = "" if rows is None or len(rows) <= SHOWN_ROWS else f" and {len(rows) - SHOWN_ROWS} more"
        advice = (
            "check the data for very large values, because no step has changed the weights yet"
            if step == 0
            else f"the learning rate is {rate:.3g}: try a smaller optim.learning_rate than {peak:g}, "
            "then check the data"
        )
        return cls(f"training stopped at step {step}: {what}; {advice} (the batch has the rows {indices}{more})")
