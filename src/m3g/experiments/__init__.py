"""Experiments of the documentation: each file is one table or figure, run by `m3g reproduce`, `bench` or `demo`."""
