"""Training: the Lightning module, schedules, checkpoints, and the run folder.

Names are imported when first used, so that reading settings or a run's files does not load Lightning.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Config": "settings.config",
    "MultiViewModule": "loop.module",
    "Run": "runs.folder",
    "build_data": "loop.build",
    "build_module": "loop.build",
    "evaluate_run": "runs.evaluate",
    "load": "runs.export",
    "push_to_hub": "runs.export",
    "train": "loop.fit",
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
