"""Shared parts of the solvers: weights, Newton system, precision, memory, couplings."""
