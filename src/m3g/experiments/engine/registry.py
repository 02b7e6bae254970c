"""The experiments by name."""

from __future__ import annotations

import importlib

from m3g import _checks as checks
from m3g.experiments.engine.names import NAMES
from m3g.experiments.engine.spec import Experiment

_FOLDERS = {  # of the experiments that are not a file of `m3g.experiments` themselves
    "imagenet": "images.imagenet",
    "epsilon": "images.epsilon",
    "cost": "images.cost",
    "branches": "images.branches",
    "domainnet": "domainnet.runs",
    "eeg": "eeg.runs",
    "views": "views.runs",
    "mismatch": "mismatch.runs",
    "variants": "variants.runs",
    "summary": "engine.summary",
}


def find(name: str) -> Experiment:
    """The experiment of that name; its module is loaded when it is asked for."""
    checks.one_of("experiment", name, NAMES)
    found: Experiment = importlib.import_module(
        f"m3g.experiments.{_FOLDERS.get(name, name.replace('-', '_'))}"
    ).EXPERIMENT
    return found
