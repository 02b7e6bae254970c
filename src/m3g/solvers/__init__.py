"""Entropic multi-marginal optimal transport: problem in, `Solution` out."""

from m3g.solvers.auto import Auto, EstimatedWarning, Workload, workload
from m3g.solvers.dense.solver import Dense
from m3g.solvers.factored.solver import Factored, RangeWarning
from m3g.solvers.linear_program import LinearProgram
from m3g.solvers.sampled.solver import Sampled, SamplingWarning
from m3g.solvers.sharded import Sharded
from m3g.solvers.shared.result import Result
from m3g.solvers.shared.solver import Solver
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution
from m3g.solvers.solve import SOLVERS, as_solver, solve

__all__ = [
    "SOLVERS",
    "Auto",
    "Dense",
    "EstimatedWarning",
    "Factored",
    "LinearProgram",
    "RangeWarning",
    "Result",
    "Sampled",
    "SamplingWarning",
    "Sharded",
    "Sinkhorn",
    "Solution",
    "Solver",
    "Workload",
    "as_solver",
    "solve",
    "workload",
]
