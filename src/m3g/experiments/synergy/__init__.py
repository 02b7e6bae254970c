"""Dependence that only three views together exhibit, which distinguishes multiway from pairwise losses."""
