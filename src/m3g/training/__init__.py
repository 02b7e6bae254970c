"""Training: the Lightning module, schedules, checkpoints, and the run folder.

Names are imported on first use, so that reading settings or files of a run does not import Lightning.
"""

from typing import TYPE_CHECKING

from m3g._lazy import lazy_names

if TYPE_CHECKING:
    from m3g.training.loop.build import build_data, build_module
    from m3g.training.loop.fit import train
    from m3g.training.loop.module import MultiViewModule
    from m3g.training.runs.evaluate import evaluate_run
    from m3g.training.runs.export import load
    from m3g.training.runs.folder import Run
    from m3g.training.runs.hub import push_to_hub
    from m3g.training.settings.config import Config

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

__getattr__, __dir__ = lazy_names(__name__)
