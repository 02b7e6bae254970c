"""Experiments of the documentation, one file or folder each, for `m3g reproduce`, `m3g bench` and `m3g demo`."""
