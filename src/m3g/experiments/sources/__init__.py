"""Readers of the experiments' data sets, which convert the published files to `.npz` files in `OUT/data`."""
