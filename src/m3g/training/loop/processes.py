"""Which of the processes of a run this is; torchrun says so in the environment."""

from __future__ import annotations

import os


def started() -> bool:
    """Whether torchrun has started the processes already."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not started() or int(os.environ["RANK"]) == 0
