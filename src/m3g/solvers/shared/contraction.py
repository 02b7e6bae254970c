"""What finds marginals from kernels and scalings, whatever way it takes."""

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
        others: marginals of all views but the leading one, one after the other (b, N - n).
        lead: (b, n), the scaling of the leading view.
    """

    pairs: dict[Edge, Tensor]
    others: Tensor
    lead: Tensor


class Contraction(ABC):
    """What finds the marginals of a coupling at given scalings.

    Attributes:
        lead: the leading view, whose scaling `evaluate` finds.
        in_logs: whether scalings are given and found as logarithms.
        shard: the own slab of a coupling of several processes, which alone is contracted; None for all of it.
        partial: the shard of which `evaluate` finds the pair marginals; None where it finds all of them.
    """

    sizes: list[int]
    lead: int = 0
    in_logs: bool = False
    shard: Shard | None = None
    partial: Shard | None = None

    @abstractmethod
    def evaluate(self, scalings: Sequence[Tensor], target: Tensor) -> Contracted:
        """Marginals of P = Π u_l Π K_lm, the leading u being the one that gives its view the marginal `target` (b, n).

        `scalings` are k tensors u_l (b, n_l).
        """

    def pair(self, scalings: Sequence[Tensor], l: int, m: int) -> Tensor:
        """A pair marginal that `evaluate` did not find."""
        raise AssertionError("every pair is found")

    def sweep(self, scalings: Sequence[Tensor], targets: Sequence[Tensor]) -> list[Tensor] | None:
        """The scalings after each view in turn was scaled to its target, where that costs no more than `evaluate`."""
        return None
