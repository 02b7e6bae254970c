"""What the sampled solver asks of a cost: log kernels of tuples, and of tuples with one view left open.

The log kernel of a tuple t is L(t) = -C(t) / eps up to terms of one view alone, which change neither the coupling nor
the gap: log scalings found for L plus `shift` are potentials / eps for C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from m3g.costs import CircularVarianceProblem, PairwiseProblem
from m3g.solvers.precision import vector_dtype


class Energies(ABC):
    """Log kernels of tuples (b, s, k) of a problem."""

    sizes: tuple[int, ...]
    shift: Tensor  # (b, N)

    @abstractmethod
    def log_kernel(self, tuples: Tensor) -> Tensor:
        """L(t): (b, s)."""

    @abstractmethod
    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        """The terms of L with view l in them, for all points of it and the other entries of t: (b, s, n_l), new."""


def energies(problem: PairwiseProblem, epsilon: float) -> Energies:
    kind = ResultantEnergies if isinstance(problem, CircularVarianceProblem) else PairEnergies
    return kind(problem, epsilon)  # type: ignore[arg-type]


class ResultantEnergies(Energies):
    """Circular variance: L(t) = 2a Σ_{l<m} ⟨r_l, r_m⟩ with a = factor / (k² eps) and r the centred views.

    The other entries of a tuple enter through their sum alone, so a conditional costs O(n d) whatever k is.
    """

    def __init__(self, problem: CircularVarianceProblem, epsilon: float):
        self.sizes = problem.sizes
        self.strength = 2 * problem.factor / (problem.k**2 * epsilon)
        views = problem.tensors[0].detach().split(list(problem.sizes), 1)
        means = [view.mean(1, keepdim=True) for view in views]
        self.views = [view - mean for view, mean in zip(views, means)]
        self.shift = self._shift(views, means, problem.factor / epsilon)

    def _shift(self, views: tuple[Tensor, ...], means: list[Tensor], constant: float) -> Tensor:
        # -C/eps = L + Σ_l (a |x_l|² + 2a ⟨x_l, M - μ_l⟩) - 2a Σ_{l<m} ⟨μ_l, μ_m⟩ - constant, with M = Σ_l μ_l.
        wide = vector_dtype(views[0].device)
        means = [mean.to(wide) for mean in means]
        total = torch.stack(means).sum(0)
        cross = (total.square() - torch.stack(means).square().sum(0)).sum(-1) / 2
        parts = []
        for view, mean in zip(views, means):
            view = view.to(wide)
            parts.append(-self.strength * (view.square().sum(-1) / 2 + (view * (total - mean)).sum(-1)))
        parts[0] = parts[0] + self.strength * cross + constant
        return torch.cat(parts, 1)

    def resultant(self, tuples: Tensor) -> Tensor:
        """Σ_l r_l of the tuples: (b, s, d)."""
        total = pick(self.views[0], tuples[..., 0])
        for m in range(1, len(self.views)):
            total = total + pick(self.views[m], tuples[..., m])
        return total

    def log_kernel(self, tuples: Tensor) -> Tensor:
        wide = vector_dtype(tuples.device)
        squares = self.resultant(tuples).to(wide).square().sum(-1)
        for m, view in enumerate(self.views):
            squares = squares - pick(view.to(wide).square().sum(-1), tuples[..., m])
        return squares * (self.strength / 2)

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        others = self.resultant(tuples) - pick(self.views[l], tuples[..., l])
        return torch.bmm(others.mul_(self.strength), self.views[l].transpose(1, 2))

    def field_logits(self, l: int, fields: Tensor) -> Tensor:
        """√(2a) ⟨g, r_l⟩ - a |r_l|² for fields g (b, s, d): (b, s, n_l), new."""
        offset = self.views[l].square().sum(-1).unsqueeze(1) * (-self.strength / 2)
        return torch.baddbmm(offset, fields, self.views[l].transpose(1, 2), alpha=self.strength**0.5)


class PairEnergies(Energies):
    """Any cost that is a sum over pairs of views: rows of n x n matrices, O(k n) per conditional."""

    def __init__(self, problem: PairwiseProblem, epsilon: float):
        self.sizes = problem.sizes
        kernels = problem.log_kernels(epsilon, problem.dtype)
        matrices = [matrix for group in kernels.groups for matrix in group.unbind(1)]
        self.exponents = dict(zip(problem.edges, matrices))
        self.shift = kernels.shift.to(vector_dtype(problem.device))

    def log_kernel(self, tuples: Tensor) -> Tensor:
        total = torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)
        for (l, m), matrix in self.exponents.items():
            flat = tuples[..., l] * self.sizes[m] + tuples[..., m]
            total += matrix.flatten(1).gather(1, flat)
        return total

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        shape = (*tuples.shape[:2], self.sizes[l])
        total = torch.zeros(shape, dtype=next(iter(self.exponents.values())).dtype, device=tuples.device)
        for (first, second), matrix in self.exponents.items():
            if first == l:
                total += pick(matrix.transpose(1, 2), tuples[..., second])
            elif second == l:
                total += pick(matrix, tuples[..., first])
        return total


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of (b, n, …) by index (b, s, …): (b, s, …, …)."""
    if table.shape[0] == 1:
        return table[0][index[0]].unsqueeze(0)
    batch = torch.arange(table.shape[0], device=table.device)
    return table[batch.reshape(-1, *[1] * (index.ndim - 1)), index]
