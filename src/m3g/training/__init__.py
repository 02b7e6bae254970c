"""Training: the Lightning module, schedules, checkpoints, and the run folder.

Names are imported when first used, so that reading settings or a run's files does not load Lightning.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Config": "config",
    "MultiViewModule": "module",
    "Run": "run",
    "build_data": "build",
    "build_module": "build",
    "evaluate_run": "evaluate",
    "load": "export",
    "push_to_hub": "export",
    "train": "fit",
}

__all__ = [
    "Config",
    "MultiViewModule",
    "Run",
    "build_data",
    "build_module",
    "evaluate_run",
    "load",
    "push_to_hub",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
