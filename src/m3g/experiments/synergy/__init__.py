"""Dependence that only three views together show, which distinguishes multiway from pairwise losses."""
