"""Exact solver for any multiway cost: scaling and Newton steps on the full tensor."""
