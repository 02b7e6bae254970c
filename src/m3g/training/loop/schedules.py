"""Schedules as functions of the optimiser step, so that a resumed run requires no state.

Steps count from 0; `total` is the number of optimiser steps of the whole run.
"""

from __future__ import annotations

import math


def cosine(step: int, *, total: int, start: float, end: float) -> float:
    """Half a cosine from `start` at step 0 to `end` at step `total`.

    >>> [round(cosine(t, total=4, start=1.0, end=0.0), 3) for t in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    progress = min(max(step / max(total, 1), 0.0), 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def warmup_cosine(step: int, *, total: int, warmup: int, peak: float, floor: float) -> float:
    """Linear from 0 to `peak` over `warmup` steps, then half a cosine down to `floor` at step `total`.

    The first step has a non-zero rate: the warm-up at step t gives `peak * (t + 1) / warmup`.

    >>> [round(warmup_cosine(t, total=6, warmup=2, peak=1.0, floor=0.0), 3) for t in range(7)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return cosine(step - warmup, total=total - warmup, start=peak, end=floor)
