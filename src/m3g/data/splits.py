"""Train, validation and test: which rows belong where, fixed by a seed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from m3g import _checks
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

    With `labels` every class is split by nearly the same fractions; with `groups` (subjects, say) a whole group
    goes to one split, so that no subject is both trained on and tested on.

    Example:
        >>> {name: len(rows) for name, rows in split_rows(100, val=0.1, test=0.2, seed=0).items()}
        {'train': 70, 'val': 10, 'test': 20}
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise ValueError(f"val and test take fractions that add up to less than 1, got {val!r} and {test!r}.")
    random = generator(_checks.seed("split_seed", seed), 1)
    if groups is not None:
        names, members = np.unique(groups, return_inverse=True)
        by_group = _cut(random.permutation(len(names)), "group", val=val, test=test)
        return {name: np.flatnonzero(np.isin(members, chosen)) for name, chosen in by_group.items()}
    # Each row gets a place in (0, 1) within its class; in their order every stretch of rows has all classes' shares.
    kinds = np.zeros(n, dtype=int) if labels is None else labels
    place = np.empty(n)
    for kind in np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        place[random.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    order = np.lexsort((random.random(n), place))
    return {name: np.sort(rows) for name, rows in _cut(order, "row", val=val, test=test).items()}


def _cut(order: np.ndarray, what: str, *, val: float, test: float) -> dict[Split, np.ndarray]:
    """Cut the rows or groups in this order into three; a split that is asked for gets at least one of them."""
    ends = np.cumsum([max(round(part * len(order)), int(part > 0)) for part in (test, val)])
    if ends[-1] >= len(order):
        raise ValueError(
            f"val and test take fractions that leave a {what} to train on, got {val!r} and {test!r} of "
            f"{len(order)} {what}s: give more {what}s, or set val or test to 0."
        )
    tested, validated, trained = np.split(order, ends)
    return {"train": trained, "val": validated, "test": tested}
