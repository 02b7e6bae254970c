"""Random removal of entries from the mask, and random permutation of entries among the rows of a view.

The random numbers of a removal are arguments of `drop_entries`. For synthetic missing data, they come from a seeded
generator. In training, they are a hash of seed, batch, row and view, because a resumed run and several processes must
drop the same entries as one uninterrupted process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m3g.data.sampling import generator


def drop_entries(mask: Tensor | None, draws: Tensor, *, fraction: float, keep: int = 1, exact: bool = False) -> Tensor:
    """Return the mask without the entries that have the smallest draws.

    Args:
        mask: bool (k, n), true where an entry is present; None if no entry is missing.
        draws: (k, n), a random number in [0, 1) for each entry.
        fraction: the probability that an entry is dropped, unless it is retained because of `keep`.
        keep: number of entries that every row keeps, those with the largest draws; a row with fewer entries keeps all.
        exact: drop exactly `round(fraction * entries)` of the present entries, or as many as `keep` allows, instead of
            drawing each entry independently.

    Example:
        >>> mask = drop_entries(None, seeded_draws(4, 100, seed=0), fraction=0.5, exact=True)
        >>> int(mask.sum()), bool(mask.any(0).all())
        (200, True)
    """
    present = torch.ones_like(draws, dtype=torch.bool) if mask is None else mask
    draws = draws.masked_fill(~present, -1.0)
    kept = torch.zeros_like(present).scatter(0, draws.topk(min(keep, len(draws)), dim=0).indices, True)
    if not exact:
        return present & (kept | (draws >= fraction))
    candidates = (present & ~kept).flatten().nonzero().flatten()
    num_dropped = min(round(fraction * int(present.sum())), len(candidates))
    remaining = present.flatten().clone()
    remaining[candidates[draws.flatten()[candidates].argsort()[:num_dropped]]] = False
    return remaining.view_as(present)


def swap_entries(views: Sequence[Tensor], mask: Tensor | None, *, fraction: float, seed: int) -> Tensor:
    """Permute a fraction of the present entries within their views, in place.

    The entries are drawn at random over all views. Within a view, the drawn entries are permuted cyclically, so that
    each of them describes a different object. A view with a single drawn entry is unchanged.

    Args:
        views: k tensors (n, ...).
        mask: bool (k, n), true where an entry is present; None if no entry is missing.
        fraction: fraction of the present entries that are drawn.
        seed: seed of the draw and of the permutations.

    Returns:
        (k, n), the row whose data each entry now contains.

    Example:
        >>> views = [torch.arange(10.0).unsqueeze(1) for _ in range(3)]
        >>> origin = swap_entries(views, None, fraction=0.4, seed=0)
        >>> bool((torch.stack(views).squeeze(-1) == origin).all()), int((origin != torch.arange(10)).sum())
        (True, 12)
    """
    k, n = len(views), len(views[0])
    random = generator(seed, 3)
    present = np.ones((k, n), dtype=bool) if mask is None else mask.numpy()
    entries = np.flatnonzero(present)
    drawn = np.zeros(k * n, dtype=bool)
    drawn[random.permutation(entries)[: round(fraction * len(entries))]] = True
    origin = torch.arange(n).repeat(k, 1)
    for l, rows in enumerate(drawn.reshape(k, n)):
        cycle = torch.from_numpy(random.permutation(np.flatnonzero(rows)))
        origin[l, cycle] = cycle.roll(1)
        views[l][cycle] = views[l][cycle.roll(1)]
    return origin


def seeded_draws(k: int, n: int, *, seed: int) -> Tensor:
    """Return uniform random numbers (k, n) that depend only on the seed."""
    return torch.from_numpy(generator(seed, 4).random((k, n)))


def hashed_draws(k: int, index: Tensor, *, key: tuple[int, int]) -> Tensor:
    """Return uniform random numbers (k, n) for the rows `index` (n,): splitmix64 of the key, the row and the view.

    In training, the key is the seed and the number of the batch.

    Example:
        >>> all_draws = hashed_draws(3, torch.arange(10), key=(0, 7))
        >>> bool((hashed_draws(3, torch.tensor([4, 2]), key=(0, 7)) == all_draws[:, [4, 2]]).all())
        True
    """
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    rows, views = index.cpu().numpy().astype(np.uint64), np.arange(k, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mix(seed ^ _mix(rows[None] * np.uint64(k) + views[:, None]))
    return torch.from_numpy((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53).to(index.device)


def _mix(value: np.ndarray) -> np.ndarray:
    """Return the splitmix64 hash of 64-bit integers."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
