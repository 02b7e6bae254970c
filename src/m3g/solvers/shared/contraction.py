"""Interface of contractions: marginals of a coupling from kernels and scalings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from m3g.costs.coupling import Edge
from m3g.solvers.shared.processes import Shard


class Contracted(NamedTuple):
    """Marginals of a coupling after the leading view has been scaled to its target.

    Attributes:
        pairs: {(l, m): (b, n_l, n_m)} for l < m.
        others: marginals of all views except the leading one, concatenated (b, N - n).
        lead: (b, n), the scaling of the leading view.
    """

    pairs: dict[Edge, Tensor]
    others: Tensor
    lead: Tensor


class Contraction(ABC):
    """Computation of the marginals of a coupling at given scalings.

    Attributes:
        lead: the leading view, whose scaling `evaluate` computes.
        in_logs: whether scalings are passed and returned as logarithms.
        shard: the slab that this process contracts if several share a solve; None for the full coupling.
        partial: the shard to which the pair marginals of `evaluate` belong; None if they are complete.
    """

    sizes: list[int]
    lead: int = 0
    in_logs: bool = False
    shard: Shard | None = None
    partial: Shard | None = None

    @abstractmethod
    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        """Return the marginals of P = Π u_l Π K_lm, where the leading u is scaled to the marginal `target` (b, n).

        `scalings` are k tensors u_l (b, n_l).
        """

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        """Return a pair marginal that `evaluate` did not compute."""
        raise AssertionError("evaluate computes every pair")

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the scalings after scaling each view in turn to its target; None if it costs more than `evaluate`."""
        return None
