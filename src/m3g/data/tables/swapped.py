"""Rows made worse on purpose: entries that show another object, or are absent, to see what that costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m3g.data.sampling import generator


def swap_entries(views: Sequence[Tensor], mask: Tensor | None, *, share: float, seed: int) -> Tensor:
    """Exchange, in place, a share of the k n entries among the rows of their view; tells (k, n) what stands where now.

    The entries are drawn at random over all views. Within a view those drawn trade places in a circle, so each of them
    shows another object than before; a view in which only one was drawn keeps it.

    Example:
        >>> views = [torch.arange(10.0).unsqueeze(1) for _ in range(3)]
        >>> shown = swap_entries(views, None, share=0.4, seed=0)
        >>> bool((torch.stack(views).squeeze(-1) == shown).all()), int((shown != torch.arange(10)).sum())
        (True, 12)
    """
    k, n = len(views), len(views[0])
    random = generator(seed, 3)
    present = np.ones((k, n), dtype=bool) if mask is None else mask.numpy()
    entries = np.flatnonzero(present)
    drawn = np.zeros(k * n, dtype=bool)
    drawn[random.permutation(entries)[: round(share * len(entries))]] = True
    shown = torch.arange(n).repeat(k, 1)
    for l, rows in enumerate(drawn.reshape(k, n)):
        circle = torch.from_numpy(random.permutation(np.flatnonzero(rows)))
        shown[l, circle] = circle.roll(1)
        views[l][circle] = views[l][circle.roll(1)]
    return shown


def absent_entries(mask: Tensor | None, *, size: tuple[int, int], share: float, seed: int) -> Tensor:
    """The mask (k, n) without a share of its entries, drawn at random; every row keeps at least one.

    Example:
        >>> left = absent_entries(None, size=(4, 100), share=0.5, seed=0)
        >>> int(left.sum()), bool(left.any(0).all())
        (200, True)
    """
    k, n = size
    random = generator(seed, 4)
    present = np.ones((k, n), dtype=bool) if mask is None else mask.numpy()
    order = np.where(present, random.random((k, n)), -1.0)
    order[order.argmax(0), np.arange(n)] = 2.0  # the entry that a row keeps
    left = round(share * present.sum())
    gone = np.argsort(np.where(present, order, 3.0), axis=None)[: min(left, int(present.sum()) - n)]
    kept = present.copy()
    kept.flat[gone] = False
    return torch.from_numpy(kept)
