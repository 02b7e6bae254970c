"""Benchmarks against other libraries, measured in one run; see `python -m benchmarks --help`."""
