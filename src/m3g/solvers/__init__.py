"""Entropic multi-marginal optimal transport: problem in, `Solution` out."""

from m3g.solvers.auto import Auto, EstimatedWarning, Workload, workload
from m3g.solvers.factored.solver import Factored
from m3g.solvers.linear_program import LinearProgram
from m3g.solvers.sampled.rounds import Sampled, SamplingWarning
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution
from m3g.solvers.solve import SOLVERS, Solver, as_solver, check_epsilon, solve

__all__ = [
    "SOLVERS",
    "Auto",
    "EstimatedWarning",
    "Factored",
    "LinearProgram",
    "Sampled",
    "SamplingWarning",
    "Sinkhorn",
    "Solution",
    "Solver",
    "Workload",
    "as_solver",
    "check_epsilon",
    "solve",
    "workload",
]
