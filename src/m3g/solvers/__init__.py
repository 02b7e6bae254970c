"""Solvers of entropic multi-marginal optimal transport: problem in, `Solution` out.

Notation in docstrings: k views with n_l points each (n if all are equal), N = Σ n_l points in total, b problems in a
batch. C is the cost tensor, P the coupling, m_l its marginals, P_lm its pair marginals and a_l the weights, which the
marginals must equal. The potentials are f_l, the log scalings h_l = f_l / eps and the scalings u_l = exp(h_l). Vectors
of all views are concatenated: (b, N). ⊕f is the sum f_1[i_1] + … + f_k[i_k] for every tuple, ⊗u the product
u_1[i_1] ⋯ u_k[i_k] for every tuple, and ∘ the entrywise product.
"""

from m3g.solvers.auto import Auto, EstimatedWarning, Workload, workload
from m3g.solvers.dense.solver import Dense
from m3g.solvers.factored.solver import Factored
from m3g.solvers.factored.streamed import RangeWarning
from m3g.solvers.linear_program import LinearProgram
from m3g.solvers.sampled.solver import Sampled, SamplingWarning
from m3g.solvers.sharded import Sharded
from m3g.solvers.shared.solver import Result, Solver
from m3g.solvers.sinkhorn import Sinkhorn
from m3g.solvers.solution import Solution
from m3g.solvers.solve import SOLVERS, SolverLike, as_solver, solve

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
    "SolverLike",
    "Workload",
    "as_solver",
    "solve",
    "workload",
]
