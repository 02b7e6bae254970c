"""Learn from k views of the same objects with the multi-marginal matching gap."""

from typing import TYPE_CHECKING

from m3g._lazy import lazy_names

if TYPE_CHECKING:
    from m3g.costs import CircularStd, CircularVariance, MultilinearProduct, PairwiseCost
    from m3g.losses.convergence import ConvergenceWarning
    from m3g.losses.m3g import M3GLoss, leave_one_out, matching_gap
    from m3g.matching import Matching, match
    from m3g.solvers import (
        Auto,
        Dense,
        EstimatedWarning,
        Factored,
        LinearProgram,
        RangeWarning,
        Result,
        Sampled,
        SamplingWarning,
        Sinkhorn,
        Solution,
        workload,
    )
    from m3g.solvers.solve import solve
    from m3g.training.runs.export import load

__version__ = "0.1.0"

__all__ = [
    "Auto",
    "CircularStd",
    "CircularVariance",
    "ConvergenceWarning",
    "Dense",
    "EstimatedWarning",
    "Factored",
    "LinearProgram",
    "M3GLoss",
    "Matching",
    "MultilinearProduct",
    "PairwiseCost",
    "RangeWarning",
    "Result",
    "Sampled",
    "SamplingWarning",
    "Sinkhorn",
    "Solution",
    "leave_one_out",
    "load",
    "match",
    "matching_gap",
    "solve",
    "workload",
]

__getattr__, __dir__ = lazy_names(__name__)
