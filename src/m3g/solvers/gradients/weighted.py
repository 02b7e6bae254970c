"""Pair marginals of P ∘ D, where P is a product of pair kernels and D a sum of matrices D_lm[i_l, i_m].

P ∘ D is the derivative of P if the log kernels change in the direction D. The pair marginals of P ∘ D are therefore the
derivatives of the pair marginals of P, computed by the product rule. For k > 2, no tensor of n^k entries is required.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import torch
from torch import Tensor

from m3g.costs.coupling import Edge, along, pair_sums
from m3g.solvers.factored.contraction import CompleteContraction
from m3g.solvers.factored.graph import expression


class WeightedComplete:
    """Pair marginals of P ∘ D if every pair of views has a kernel, by matrix products (factored/contraction.py)."""

    def __init__(self, kernels: dict[Edge, Tensor], sizes: Sequence[int]):
        contraction = CompleteContraction(kernels, sizes, whole=True)
        self.contraction = contraction
        self.kernels, self.sizes = kernels, list(sizes)
        if contraction.between is not None:
            self.between = contraction.between
            self.joint = torch.bmm(contraction.left, contraction.right.transpose(1, 2))
            self.pull_left = torch.bmm(self.between, contraction.right)
            self.pull_right = torch.bmm(self.between.transpose(1, 2), contraction.left)

    def pairs(self) -> dict[Edge, Tensor]:
        """Return the pair marginals of P, which is P ∘ 1."""
        return self({(0, 1): torch.ones_like(self.kernels[0, 1])})

    def __call__(self, directions: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        contraction, pivot = self.contraction, self.contraction.pivot
        if pivot is None:
            return {(0, 1): self.kernels[0, 1] * directions[0, 1]}
        left, right = contraction.left, contraction.right
        a, b = contraction.group_a, contraction.group_b
        d_left = self._group_derivative(a, directions, left)
        d_right = self._group_derivative(b, directions, right)
        across = self._sum(directions, [(l, m) for l in a for m in b], a + b)
        d_between = None if across is None else across.reshape_as(self.between) * self.between
        # Product rule, with d_x the derivative of x. None represents a derivative of 0, whose products are skipped.
        d_joint = _add(
            _times(
                _add(_product("zac,zbc->zab", d_left, right), _product("zac,zbc->zab", left, d_right)), self.between
            ),
            _times(d_between, self.joint),
        )
        d_pull_left = _add(_product("zab,zbc->zac", d_between, right), _product("zab,zbc->zac", self.between, d_right))
        d_pull_right = _add(_product("zab,zac->zbc", d_between, left), _product("zab,zac->zbc", self.between, d_left))
        d_joint_a = _add(_times(d_left, self.pull_left), _times(d_pull_left, left))
        d_joint_b = _add(_times(d_right, self.pull_right), _times(d_pull_right, right))
        assert d_joint is not None, "some direction is given"
        assert d_joint_a is not None
        assert d_joint_b is not None
        pairs = pair_sums(d_joint.reshape(-1, *(self.sizes[l] for l in a + b)), a + b)
        for group, with_pivot in ((a, d_joint_a), (b, d_joint_b)):
            shaped = with_pivot.unflatten(1, [self.sizes[l] for l in group])
            for i, l in enumerate(group):
                rest = [j + 1 for j in range(len(group)) if j != i]
                pairs[l, pivot] = shaped.sum(rest) if rest else shaped
        return {(l, m) if l < m else (m, l): pair if l < m else pair.transpose(1, 2) for (l, m), pair in pairs.items()}

    def _group_derivative(self, group: list[int], directions: dict[Edge, Tensor], kernel: Tensor) -> Tensor | None:
        """Return the derivative of the kernel of a group and the pivot, `left` or `right`; None if it is 0."""
        pivot = self.contraction.pivot
        assert pivot is not None
        views = [*group, pivot]
        direction = self._sum(directions, list(combinations(views, 2)), views)
        return None if direction is None else direction.reshape_as(kernel) * kernel

    def _sum(self, directions: dict[Edge, Tensor], edges: list[Edge], views: list[int]) -> Tensor | None:
        """Return the sum of the directions on some edges, with one axis for each of `views`; None if it is 0."""
        total = None
        for l, m in edges:
            edge = (min(l, m), max(l, m))
            if edge in directions:
                matrix = directions[edge] if l < m else directions[edge].transpose(1, 2)
                # In `views`, l comes before m.
                term = along(matrix, (views.index(l), views.index(m)), len(views))
                total = term if total is None else total + term
        if total is None:
            return None
        return total.expand(total.shape[0], *(self.sizes[l] for l in views))


def _product(equation: str, x: Tensor | None, y: Tensor | None) -> Tensor | None:
    return None if x is None or y is None else torch.einsum(equation, x, y)


def _times(x: Tensor | None, y: Tensor) -> Tensor | None:
    return None if x is None else x * y


def _add(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    if x is None or y is None:
        return y if x is None else x
    return x + y


class WeightedGraph:
    """Pair marginals of P ∘ D if some pairs of views have no kernel, by second derivatives of the mass of P.

    The first derivatives of the mass with respect to the log kernels are the pair marginals of P. The mass is computed
    by a contraction whose order opt_einsum chooses. A call returns only the pair marginals of pairs with a kernel.
    """

    def __init__(self, kernels: dict[Edge, Tensor], sizes: Sequence[int]):
        self.kernels, self.sizes = kernels, tuple(sizes)
        contract = self._contraction(())

        def mass(*logs: Tensor) -> Tensor:
            total: Tensor = contract(*(log.exp() for log in logs), backend="torch").sum()
            return total

        logs = [kernel.log() for kernel in kernels.values()]
        marginals = torch.func.grad(mass, argnums=tuple(range(len(logs))))
        self.edge_marginals, self.derivative = torch.func.vjp(marginals, *logs)  # type: ignore[misc]

    def pairs(self) -> dict[Edge, Tensor]:
        """Return the pair marginals of P for all pairs of views."""
        out = dict(zip(self.kernels, self.edge_marginals))
        for edge in combinations(range(len(self.sizes)), 2):
            if edge not in out:
                out[edge] = self._contraction(edge)(*self.kernels.values(), backend="torch")
        return out

    def __call__(self, directions: dict[Edge, Tensor]) -> dict[Edge, Tensor]:
        moves = (directions.get(edge, torch.zeros_like(kernel)) for edge, kernel in self.kernels.items())
        return dict(zip(self.kernels, self.derivative(tuple(moves))))

    def _contraction(self, views: tuple[int, ...]) -> Callable[..., Tensor]:
        num_batch = next(iter(self.kernels.values())).shape[0]
        return expression(tuple(self.kernels), self.sizes, num_batch, views)
