"""Data sets of the experiments, read from their public layouts into one file each below `OUT/data`."""
