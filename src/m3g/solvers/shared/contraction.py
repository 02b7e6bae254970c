"""Interface of contractions, which compute the marginals of a coupling from its kernel and its scalings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from m3g.costs.coupling import Edge
from m3g.solvers.shared.processes import Shard


class Contracted(NamedTuple):
    """Marginals of a coupling whose leading view is scaled to its weights.

    Attributes:
        pairs: pair marginals {(l, m): (b, n_l, n_m)}, l < m, of all pairs or of those that the contraction computes.
        others: (b, N - n), marginals of all views except the leading one, concatenated.
        lead: (b, n), the new scaling of the leading view, or its logarithm (`Contraction.in_logs`).
    """

    pairs: dict[Edge, Tensor]
    others: Tensor
    lead: Tensor


class Contraction(ABC):
    """Computation of the marginals of a coupling at given scalings.

    Attributes:
        sizes: numbers of points n_1, …, n_k.
        lead: index of the leading view, whose scaling `evaluate` computes.
        in_logs: whether scalings are passed and returned as logarithms.
        shard: the part of the coupling that this process contracts if several processes share a solve; otherwise None.
        pairs_shard: the shard to which the pair marginals of `evaluate` are restricted; None if they are those of the
            full coupling.
    """

    sizes: list[int]
    lead: int = 0
    in_logs: bool = False
    shard: Shard | None = None
    pairs_shard: Shard | None = None

    @abstractmethod
    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        """Return the marginals of the coupling at the scalings u_l, k tensors (b, n_l).

        The scaling of the leading view is replaced, so that its marginal equals `target` (b, n).
        """

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        """Return a pair marginal that `evaluate` does not compute."""
        raise AssertionError("evaluate returns every pair")

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the scalings after a sweep of Algorithm 1; None if this contraction provides no sweep."""
        return None
