"""Sampled solver: `Sampled` in solver.py, its iterations in rounds.py.

Notation of this package, in addition to that of `m3g.solvers`: L(t) is the log kernel of a tuple t, -C(t) / eps up to
terms of one view (log_kernel.py); h are log scalings; s is a number of samples, or of rows of a table. The *centre* of
a component of a proposal distribution is the tuple around which it draws. docs/sampled.md explains the method.
"""
