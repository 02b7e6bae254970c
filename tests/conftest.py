"""Settings of all tests."""

import os
import random

import numpy as np
import torch
from hypothesis import settings

# POT, a peer in the tests, imports JAX where the benchmarks' packages are installed, and JAX warns at every fork of a
# data loader's worker.
os.environ["POT_BACKEND_DISABLE_JAX"] = "1"

# In CI (`.ci/run`, GitHub) the same examples in every run, so that a failure is due to the change; elsewhere new
# examples in every run, which find more. No deadlines: a busy machine is no error.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "random")


def pytest_runtest_setup(item):
    """What a test draws without a seed of its own is the same in every run, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator, which code under test may use
    torch.manual_seed(0)
