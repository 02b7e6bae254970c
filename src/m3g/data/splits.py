"""Split of rows into training, validation and test, determined by a seed, a column or a published list."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
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
    """Return the rows of each split of n rows, determined by a seed.

    `val` and `test` are fractions of the rows; the rest is for training. With `labels` (n,), every class is split by
    nearly the same fractions. With `groups` (n,), such as subjects, `val` and `test` are fractions of the groups, and
    `labels` is not used. Each group is in one split only, so that no subject is used for both training and testing.

    Example:
        >>> {name: len(rows) for name, rows in split_rows(100, val=0.1, test=0.2, seed=0).items()}
        {'train': 70, 'val': 10, 'test': 20}
    """
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise ValueError(f"val and test must be fractions that add up to less than 1, got {val!r} and {test!r}.")
    random = generator(_checks.seed("split_seed", seed), 1)
    if groups is not None:
        names, members = np.unique(groups, return_inverse=True)
        by_group = _cut(random.permutation(len(names)), "group", val=val, test=test)
        return {name: np.flatnonzero(np.isin(members, chosen)) for name, chosen in by_group.items()}
    # Each row gets a position in (0, 1) within its class. Sorted by position, any range of rows is stratified.
    classes = np.zeros(n, dtype=int) if labels is None else labels
    position = np.empty(n)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        position[random.permutation(rows)] = (np.arange(len(rows)) + 0.5) / len(rows)
    order = np.lexsort((random.random(n), position))
    return {name: np.sort(rows) for name, rows in _cut(order, "row", val=val, test=test).items()}


OTHER_NAMES = {"validation": "val", "valid": "val", "dev": "val", "training": "train", "testing": "test"}


def given_split(names: Sequence[object], groups: np.ndarray | None = None) -> dict[Split, np.ndarray]:
    """Return the rows of each split from a column of split names; raise if a group is in two splits.

    Example:
        >>> {name: rows.tolist() for name, rows in given_split(["train", "test", "validation", "train"]).items()}
        {'train': [0, 3], 'val': [2], 'test': [1]}
    """
    row_splits = np.array([OTHER_NAMES.get(str(name), str(name)) for name in names])
    wrong = np.flatnonzero(~np.isin(row_splits, SPLITS))
    if len(wrong):
        raise ValueError(f"split must be train, val or test in every row, got {names[wrong[0]]!r} in row {wrong[0]}.")
    if "train" not in row_splits:
        raise ValueError("split must have at least one training row, got none.")
    if groups is not None:
        part_of: dict[str, str] = {}
        for row, (group, part) in enumerate(zip(groups.tolist(), row_splits.tolist())):
            if part_of.setdefault(group, part) != part:
                raise ValueError(
                    f"split must assign every group to one split, got {group!r} in {part_of[group]!r} and in "
                    f"{part!r} (row {row})."
                )
    return {part: np.flatnonzero(row_splits == part) for part in SPLITS}


def read_split(path: Path, groups: np.ndarray) -> dict[Split, np.ndarray]:
    """Return the rows of each split from a published list: a .csv file with the columns `subject` and `split`.

    Listed subjects without rows are ignored; a subject in two splits, or with rows but in no split, raises an error.
    """
    if not path.is_file():
        raise ValueError(f"splits must be a .csv file that exists, got {str(path)!r}: check the path.")
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeError, csv.Error) as error:
        raise ValueError(f"splits must be a .csv file in UTF-8, got {str(path)!r} ({error}).") from error
    if not lines or lines[0][1] != ["subject", "split"]:
        raise ValueError(f"splits must be a .csv file with the columns subject,split, got others in {str(path)!r}.")
    part_of: dict[str, str] = {}
    for number, line in lines[1:]:
        if len(line) != 2 or line[1] not in SPLITS:
            raise ValueError(f"splits must have lines 'subject,train' (or val, test), got {','.join(line)!r}.")
        subject, part = line
        if part_of.setdefault(subject, part) != part:
            raise ValueError(
                f"splits must assign every subject to one split, got {subject!r} in {part_of[subject]!r} and in "
                f"{part!r} (line {number})."
            )
    unknown = sorted(set(groups.tolist()) - set(part_of))
    if unknown:
        raise ValueError(f"splits must name every subject, got no line for {unknown[0]!r}.")
    row_splits = np.array([part_of[group] for group in groups.tolist()])
    if "train" not in row_splits:
        raise ValueError(f"splits must assign at least one subject to train, got none in {str(path)!r}.")
    return {part: np.flatnonzero(row_splits == part) for part in SPLITS}


def _cut(order: np.ndarray, what: str, *, val: float, test: float) -> dict[Split, np.ndarray]:
    """Divide ordered rows or groups into three splits; a split with a positive fraction gets at least one."""
    ends = np.cumsum([max(round(part * len(order)), int(part > 0)) for part in (test, val)])
    if ends[-1] >= len(order):
        raise ValueError(
            f"val and test must leave at least one {what} to train on, got {val!r} and {test!r} of "
            f"{len(order)} {what}s: use more {what}s, or set val or test to 0."
        )
    tested, validated, trained = np.split(order, ends)
    return {"train": trained, "val": validated, "test": tested}
