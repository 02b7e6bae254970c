"""Benchmarks of m3g and comparisons with other libraries.

`python -m benchmarks --help` lists the suites of `make bench`; other modules are separate programs.
"""
