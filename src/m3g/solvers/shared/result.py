"""Status of a solve."""

from __future__ import annotations

from enum import Enum


class Result(Enum):
    """Status of a solve; the value of a member is its message.

    Example:
        >>> import torch, m3g
        >>> solution = m3g.solve(torch.rand(4, 4, 4), epsilon=0.5)
        >>> solution.result is m3g.Result.CONVERGED, solution.result.value
        (True, 'the marginals are within tol of the weights')
    """

    CONVERGED = "the marginals are within tol of the weights"
    ESTIMATED = "the marginals of a sampled kernel are within tol of the weights, and the value has a standard error"
    OUT_OF_STEPS = "the solver took all its steps before the marginals were within tol of the weights"
    OUT_OF_RANGE = "a number exceeded the range of its dtype"
    UNTRUSTED = "the estimated error of a sampled solution is too large, or a validation sample contradicts it"
