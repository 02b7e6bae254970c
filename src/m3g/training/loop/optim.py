"""AdamW: parameter groups, scaling rules for other batch sizes, and schedules.

Schedules are functions of the optimiser step, so that they have no state to resume. Steps count from 0; `total` is the
number of optimiser steps of the whole run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import nn

from m3g import _checks as checks


@dataclass(frozen=True)
class AdamSettings:
    """Settings of Adam: learning rate, betas and epsilon."""

    learning_rate: float
    betas: tuple[float, float]
    eps: float


def scale_adam(settings: AdamSettings, kappa: float) -> AdamSettings:
    """Rescale Adam's settings to a batch `kappa` times as large.

    `lr * sqrt(kappa)`, `beta -> 1 - kappa (1 - beta)`, `eps / sqrt(kappa)`: the square-root rule, under which the path
    of the weights is unchanged in the limit of small steps. Raises if a beta would be negative.

    >>> scale_adam(AdamSettings(1e-3, (0.9, 0.99), 1e-8), 4).betas
    (0.6, 0.96)
    """
    kappa = checks.positive("kappa", kappa)
    betas = tuple(round(1 - kappa * (1 - beta), 12) for beta in settings.betas)
    if min(betas) < 0:
        largest = 1 / (1 - min(settings.betas))
        raise ValueError(
            f"reference_batch must be at least 1/{largest:g} of the run's batch size, got 1/{kappa:g}, for which the "
            f"scaling rule changes betas {settings.betas} to {betas}: use a smaller batch, a larger reference_batch, "
            "or betas closer to 1."
        )
    return replace(
        settings,
        learning_rate=settings.learning_rate * kappa**0.5,
        betas=(betas[0], betas[1]),
        eps=settings.eps / kappa**0.5,
    )


def scale_momentum(momentum: float, kappa: float) -> float:
    """Rescale the momentum of the teacher to a batch `kappa` times as large: `momentum ** kappa`.

    >>> scale_momentum(0.99, 2)
    0.9801
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must be a number in [0, 1), got {momentum!r}.")
    return float(momentum ** checks.positive("kappa", kappa))


class ParameterGroup(TypedDict):
    """Parameters with the same schedules.

    Attributes:
        params: the parameters.
        decays: whether weight decay applies.
        own_rate: a peak learning rate instead of that of the run, or None.
    """

    params: list[nn.Parameter]
    decays: bool
    own_rate: float | None


def parameter_groups(module: nn.Module) -> list[ParameterGroup]:
    """Return the trainable parameters in two groups: with weight decay (two or more dimensions, no biases) and without.

    Each distinct learning rate that is set for an encoder adds at most two groups.
    """
    separate_rates = {
        id(p): rate
        for part in module.modules()
        if isinstance(rate := getattr(part, "learning_rate", None), float)
        for p in part.parameters()
    }
    groups: dict[tuple[float | None, bool], list[nn.Parameter]] = {(None, True): [], (None, False): []}
    for name, p in module.named_parameters():
        if p.requires_grad:
            decays = p.ndim > 1 and not name.endswith("bias")
            groups.setdefault((separate_rates.get(id(p)), decays), []).append(p)
    return [{"params": params, "decays": decays, "own_rate": rate} for (rate, decays), params in groups.items()]


def adamw(module: nn.Module, settings: AdamSettings, *, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """Return AdamW over `parameter_groups`; `weight_decay` is the initial weight decay of the groups that have one."""
    groups = [
        {**group, "weight_decay": weight_decay if group["decays"] else 0.0}
        for group in parameter_groups(module)
        if group["params"]
    ]
    if not groups:
        raise ValueError("the network must have at least one parameter to train, got none.")
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, eps=settings.eps)


def cosine(step: int, *, total: int, start: float, end: float) -> float:
    """Return the value at a step: half a cosine from `start` at step 0 to `end` at step `total`.

    >>> [round(cosine(t, total=4, start=1.0, end=0.0), 3) for t in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    progress = min(max(step / max(total, 1), 0.0), 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def warmup_cosine(step: int, *, total: int, warmup: int, peak: float, floor: float) -> float:
    """Return the value at a step: linear from 0 to `peak` over `warmup` steps, then a cosine to `floor` at `total`.

    The first step has a non-zero rate: the warm-up at step t gives `peak * (t + 1) / warmup`.

    >>> [round(warmup_cosine(t, total=6, warmup=2, peak=1.0, floor=0.0), 3) for t in range(7)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return cosine(step - warmup, total=total - warmup, start=peak, end=floor)
