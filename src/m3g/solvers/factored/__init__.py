"""Exact solver for pairwise costs by matrix products; `Factored` in solver.py."""
