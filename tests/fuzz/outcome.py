"""Outcome of one trial."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """`kind` is held, warned, refused, skipped or failed; `text` gives the reason."""

    kind: str
    text: str = ""


class Tried(NamedTuple):
    """A trial of a group, with the command that repeats it if it failed."""

    group: str
    outcome: Outcome
    reproducer: str = ""
