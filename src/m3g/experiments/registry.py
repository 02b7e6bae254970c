"""The experiments by name."""

from __future__ import annotations

import importlib

from m3g import _checks as checks
from m3g.experiments.names import NAMES
from m3g.experiments.spec import Experiment


def find(name: str) -> Experiment:
    """The experiment of that name; its module is loaded when it is asked for."""
    checks.one_of("experiment", name, NAMES)
    found: Experiment = importlib.import_module(f"m3g.experiments.{name.replace('-', '_')}").EXPERIMENT
    return found
