"""Dependence that only three views together show: where multiway losses differ from pairwise ones."""
