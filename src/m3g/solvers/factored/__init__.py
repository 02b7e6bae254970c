"""Exact solves of costs by pairs of views, by matrix products; `Factored` in solver.py."""
