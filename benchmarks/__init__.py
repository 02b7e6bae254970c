"""Measured side by side with peers, in one run; `python -m benchmarks --help`."""
