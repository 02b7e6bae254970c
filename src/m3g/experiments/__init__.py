"""Experiments of the documentation: one file or folder per table or figure, for `m3g reproduce`, `bench` and `demo`."""
