"""Estimated solves, linear in the number of views; `Sampled` in rounds.py."""
