"""Train, validation and test: which rows belong where, fixed by a seed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from m3g.data.sampling import generator

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


def split_rows(
    n: int,
    *,
    val: float,
    test: float,
    seed: int,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> dict[Split, np.ndarray]:
    """Split n rows by the fractions `val` and `test` (the rest trains), the same for the same seed.

    With `labels` every class is split by the same fractions; with `groups` (subjects, say) a whole group goes
    to one split, so that no subject is both trained on and tested on.

    Example:
        >>> {name: len(rows) for name, rows in split_rows(100, val=0.1, test=0.2, seed=0).items()}
        {'train': 70, 'val': 10, 'test': 20}
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise ValueError(f"val and test take fractions that add up to less than 1, got {val!r} and {test!r}.")
    random = generator(seed, 1)
    if groups is not None:
        names, members = np.unique(groups, return_inverse=True)
        needed = 1 + (val > 0) + (test > 0)
        if len(names) < needed:
            raise ValueError(
                f"split by group takes at least {needed} different groups, got {len(names)}: "
                "give more of them, or set val or test to 0."
            )
        # Few groups are the rule: a split that is asked for gets at least one.
        order = random.permutation(len(names))
        ends = np.cumsum([max(round(part * len(names)), int(part > 0)) for part in (test, val)])
        if ends[-1] >= len(names):
            raise ValueError(f"val and test take fractions that leave a group to train on, got {val!r} and {test!r}.")
        by_group = dict(zip(("test", "val", "train"), np.split(order, ends)))
        return {name: np.flatnonzero(np.isin(members, by_group[name])) for name in SPLITS}
    # Each row gets a place in (0, 1) within its class; thresholds on it cut every class alike.
    kinds = np.zeros(n, dtype=int) if labels is None else labels
    place = np.empty(n)
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        place[random.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    parts: dict[Split, np.ndarray] = {
        "test": np.flatnonzero(place < test),
        "val": np.flatnonzero((place >= test) & (place < test + val)),
        "train": np.flatnonzero(place >= test + val),
    }
    wanted: dict[Split, float] = {"test": test, "val": val, "train": 1.0}
    for name in SPLITS:
        if wanted[name] > 0 and len(parts[name]) == 0:
            raise ValueError(
                f"the split {name!r} takes at least one row, got none of {n}: give more rows or change val and test."
            )
    return {name: parts[name] for name in SPLITS}
