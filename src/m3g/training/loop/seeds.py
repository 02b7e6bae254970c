"""Seeding of all global random generators from the seed, the step and the process."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int, step: int, rank: int = 0) -> None:
    """Seed the generators of torch, NumPy and Python with a hash of the seed, the step and the rank."""
    mixed = int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint32)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(mixed)
    else:
        # Without an accelerator, torch.manual_seed queues a stack trace per call for later use, which leaks memory.
        torch.default_generator.manual_seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002 - user code may draw from the global generator
    random.seed(mixed)
