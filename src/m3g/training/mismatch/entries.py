"""`mismatch.csv`: the reliability of every evaluated training entry, the least reliable first."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from m3g._csv import unescape
from m3g.training.mismatch.reliability import Mismatch
from m3g.training.runs.files import write_csv
from m3g.training.runs.folder import Run


class Entry(NamedTuple):
    """Entry with its reliability r and its log odds log(r / (1 - r)), which do not saturate near r = 0 and 1."""

    row: int
    view: str
    reliability: float
    log_odds: float


def write_entries(path: str | os.PathLike[str], mismatch: Mismatch, view_names: Sequence[str], index: Tensor) -> None:
    """Write `mismatch.csv`: all evaluated entries of the rows `index`, the least reliable first."""
    odds = mismatch.log_odds().cpu()
    evaluated = (mismatch.visits > 0).any(1).cpu()
    entries = [
        (float(odds[l, row]), row, name, float(odds[l, row].sigmoid()))
        for l, name in enumerate(view_names)
        for row in index.tolist()
        if evaluated[l, row]
    ]
    lines = ((row, name, f"{reliability:.4g}", f"{value:.6g}") for value, row, name, reliability in sorted(entries))
    write_csv(path, Entry._fields, lines)


def read_entries(run: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of a run, the least reliable first."""
    folder = Run.of(run)
    folder.open()
    if not folder.mismatch.is_file():
        raise ValueError(f"run must have been trained with --mismatch, but {folder.path} has no mismatch.csv.")
    entries = []
    with open(folder.mismatch, newline="") as file:
        for line in csv.DictReader(file):
            try:
                row, reliability, log_odds = int(line["row"]), float(line["reliability"]), float(line["log_odds"])
                entries.append(Entry(row, unescape(line["view"]), reliability, log_odds))
            except (KeyError, TypeError, ValueError):
                raise ValueError(
                    f"{folder.mismatch} must have the columns {', '.join(Entry._fields)}, got {line}."
                ) from None
    return entries
