"""Sampled solver, linear in the number of views: `Sampled` in solver.py, its iterations in rounds.py."""
