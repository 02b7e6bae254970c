"""Views that go missing in training, on purpose: the network learns to do without them.

Whether an entry is left out is a function of the seed, the step, the row and the view. So a run that is resumed leaves
out what it would have left out anyway, and several processes together leave out what one process would have.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

KEPT = 2  # views that every row keeps, so that there is something to compare


def drop_views(mask: Tensor | None, index: Tensor, k: int, *, share: float, key: tuple[int, int]) -> Tensor:
    """The mask (k, n) of a batch without the entries that chance leaves out.

    Args:
        mask: bool (k, n), true where a row has a view; None if all have.
        index: (n,), the numbers of the rows.
        k: number of views.
        share: the probability that an entry is left out; a row keeps two of its views, or the one that it has.
        key: the seed and the step.

    Example:
        >>> kept = drop_views(None, torch.arange(1000), 4, share=0.3, key=(0, 7))
        >>> bool((kept.sum(0) >= 2).all()), round(float(kept.float().mean()), 1)
        (True, 0.7)
    """
    chance = torch.from_numpy(_uniform(key, index.cpu().numpy(), k)).to(index.device)
    present = torch.ones_like(chance, dtype=torch.bool) if mask is None else mask
    chance = chance.masked_fill(~present, -1.0)
    best = chance.topk(min(KEPT, k), dim=0).indices  # the last that a larger share would leave out
    return (chance >= share).scatter(0, best, True) & present


def _uniform(key: tuple[int, int], index: np.ndarray, k: int) -> np.ndarray:
    """Numbers in [0, 1), (k, n): splitmix64 of the key, the row and the view, which needs no generator per row."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        mixed = _mix(seed ^ _mix(index.astype(np.uint64)[None] * np.uint64(k) + np.arange(k, dtype=np.uint64)[:, None]))
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53)


def _mix(value: np.ndarray) -> np.ndarray:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
