"""Temperature of a contrastive loss, fixed or learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from m3g._checks import flag, positive

MINIMUM = 0.01  # lower bound of a learned temperature


class Temperature(nn.Module):
    """Temperature of a loss: a fixed positive number, or `0.01 + exp(s)` with a learned parameter s.

    Args:
        value: the temperature, or its initial value if it is learned.
        learn: whether the temperature is learned.

    Example:
        >>> Temperature(0.1)()
        0.1
        >>> round(Temperature(0.07, learn=True)().item(), 6)
        0.07
    """

    def __init__(self, value: float, *, learn: bool = False) -> None:
        super().__init__()
        self.value = positive("temperature", value)
        if flag("learn_temperature", learn):
            if self.value <= MINIMUM:
                raise ValueError(f"temperature must be more than {MINIMUM} when it is learned, got {value!r}.")
            self.exponent = nn.Parameter(torch.tensor(math.log(self.value - MINIMUM)))
        else:
            self.register_parameter("exponent", None)

    def forward(self) -> Tensor | float:
        return self.value if self.exponent is None else MINIMUM + self.exponent.exp()

    def extra_repr(self) -> str:
        learned = self.exponent is not None
        return f"{MINIMUM + self.exponent.exp().item() if learned else self.value:.4g}, learn={learned}"


def check_temperature(temperature: Tensor | float) -> None:
    """Validate a fixed temperature. A tensor is assumed to be the value of a `Temperature`, which is positive."""
    if not isinstance(temperature, Tensor):
        positive("temperature", temperature)
