"""Registry of experiments by name. To add one, write a module with an `EXPERIMENT` and add a line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from m3g import _values as checks

if TYPE_CHECKING:  # the command line lists the names without importing torch
    from m3g.experiments.engine.spec import Experiment

# name: (module below m3g.experiments, what it measures)
MODULES = {
    "imagenet": ("images.imagenet", "accuracy against the number of augmentations (Table 1)"),
    "domainnet": ("domainnet.runs", "unseen domains (Table 2, Figures 3 and A1)"),
    "emoji": ("emoji", "unseen vendors of 1594 emoji: like Table 2, with many classes"),
    "eeg": ("eeg.runs", "a few labels on signals of six channels (Table 3)"),
    "epsilon": ("images.epsilon", "accuracy against epsilon (Figure 4)"),
    "cost": ("images.cost", "circular variance against circular standard deviation (Table 4)"),
    "overhead": ("overhead", "fraction of a training step spent in the loss (Figure 5)"),
    "iterations": ("iterations", "steps to tolerance against epsilon, Sinkhorn and Newton"),
    "budget": ("images.budget", "more augmentations of fewer images at a fixed number of augmented images"),
    "branches": ("images.branches", "accuracy and memory against the number of student views"),
    "default-set": ("default_set", "M3G and pairwise InfoNCE on the six-view digits, grids of equal size"),
    "mismatch": ("mismatch.runs", "detection and cost of mismatches among the six-view digits"),
    "synergy": ("synergy.runs", "dependence among all views: multiway and pairwise losses"),
    "views": ("views.runs", "k-view losses on real sets of 2 to 12 views, each in its best setting"),
}
NAMES = {name: about for name, (_, about) in MODULES.items()}
# Experiments whose code was removed; `summary` shows the table stored in their folder.
RECORDS = {"variants": "variants of M3G, its epsilon and its comparisons, on validation rows"}


def find(name: str) -> Experiment:
    """Return the experiment of that name; its module is imported on demand."""
    module, _ = MODULES[checks.one_of("experiment", name, MODULES)]
    experiment: Experiment = importlib.import_module(f"m3g.experiments.{module}").EXPERIMENT
    return experiment
