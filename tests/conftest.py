"""Settings of all tests."""

import os

# POT, a peer in the tests, imports JAX where the benchmarks' packages are installed, and JAX warns at every fork of a
# data loader's worker.
os.environ["POT_BACKEND_DISABLE_JAX"] = "1"
