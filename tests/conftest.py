"""Settings of all tests."""

import os
import random

import numpy as np
import pytest
import torch
from hypothesis import settings

import pictures
from fixtures import (  # noqa: F401 - fixtures
    coloured,
    command,
    copy,
    data_folder,
    error_line,
    finished,
    four_views,
    no_hub,
    rendered,
    torchrun,
    two_views,
)

# POT, a peer in the tests, imports JAX where the benchmarks' packages are installed, and JAX warns at every fork of a
# data loader's worker.
os.environ["POT_BACKEND_DISABLE_JAX"] = "1"

# Every pytest worker compiles in its own process, because starting a pool takes longer than it saves.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

pictures.leave_plots_of_runs_blank()

# CI (`.ci/run`, GitHub) uses the same examples in every run, so that a failure is due to the change. Elsewhere every
# run draws new examples, which cover more. There are no deadlines, because the load of the machine varies.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "random")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Look for doctests in the package only. A search of all tests takes seconds in every worker."""
    return [file for file in (yield) if type(file) is pytest.Module]


def pytest_collection_modifyitems(items):
    """Run files with slow tests first, so that no worker waits for the long test of another at the end."""
    files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in files)


def pytest_runtest_setup(item):
    """Seed the global generators, so that unseeded random numbers do not depend on earlier tests."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator, which code under test may use
    torch.manual_seed(0)
