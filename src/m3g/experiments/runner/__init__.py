"""Grids of settings, and the training of runs at laptop and paper scale."""
