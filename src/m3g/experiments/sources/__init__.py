"""Readers of the experiments' data sets, which convert the published files to one file each below `OUT/data`."""
