"""Log kernels of tuples, and of tuples with one view left open, for the sampled solver.

The log kernel of a tuple t is L(t) = -C(t) / eps up to one-view terms, which change neither the coupling nor the gap:
log scalings for L plus `shift` are potentials / eps for C.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from m3g.costs import (
    CircularStdProblem,
    CircularVarianceProblem,
    PairwiseProblem,
    Problem,
    ProductProblem,
    SumProblem,
)
from m3g.costs.circular import RESULTANT_FLOOR
from m3g.costs.problem import vector_dtype
from m3g.solvers.sampled.recomputed_rows import chunk_rows
from m3g.solvers.shared.precision import largest_magnitude


class LogKernel(ABC):
    """Log kernels of tuples (b, s, k) of a problem: L(t) = conditional(l, t)[t_l] + rest(l, t) for every view l."""

    sizes: tuple[int, ...]
    shift: Tensor  # (b, N)
    itemsize: int  # bytes of a number in the tables
    features: int  # length of intermediate feature vectors; 0 if there are none
    has_products = False  # whether it is a mean of products over the views, see product_kernel.py
    has_maxima = False  # whether tuples that differ in two or more views can be local maxima, as for the product

    def sharpness(self) -> Tensor:
        """Return the squared distance of tuples that differ in one view, relative to the variance of a product."""
        raise NotImplementedError("there are no products for this cost")

    @abstractmethod
    def reach(self) -> float:
        """Return an upper bound on |L(t)|."""

    @abstractmethod
    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        """Return the terms of L with view l, for all its points and the other entries of t: (b, s, n_l), new."""

    @abstractmethod
    def rest(self, l: int, tuples: Tensor) -> Tensor:
        """Return the terms of L without view l: (b, s), in float64."""


class ResultantKernel(LogKernel):
    """Circular variance: L(t) = 2a Σ_{l<m} ⟨r_l, r_m⟩ with a = factor / (k² eps) and r the centred views.

    The other entries of a tuple contribute only through their sum, so a conditional costs O(n d) for every k.
    """

    has_products = True

    def __init__(self, problem: CircularVarianceProblem, epsilon: float):
        self.sizes = problem.sizes
        self.strength = 2 * problem.factor / (problem.k**2 * epsilon)
        self.itemsize, self.features = problem.dtype.itemsize, problem.tensors[0].shape[-1]
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

    def sharpness(self) -> Tensor:
        """Return the mean of 2a |r_i - r_j|² over the points of a view."""
        squares = [view.square().sum(-1).mean(1) for view in self.views]
        return 2 * self.strength * torch.stack(squares).mean(0).max()

    def reach(self) -> float:
        return self.strength / 2 * float(_longest(self.views).square())

    def resultant(self, tuples: Tensor) -> Tensor:
        """Σ_l r_l of the tuples: (b, s, d)."""
        return resultant(self.views, tuples)

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        others = resultant(self.views, tuples, without=l)
        return torch.bmm(others.mul_(self.strength), self.views[l].transpose(1, 2))

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        wide = vector_dtype(tuples.device)
        step = chunk_rows(tuples.shape[1], 3 * wide.itemsize * tuples.shape[0] * self.features, tuples.device)
        squares = torch.cat(
            [resultant(self.views, some, without=l).to(wide).square().sum(-1) for some in tuples.split(step, 1)], 1
        )
        for m, view in enumerate(self.views):
            if m != l:
                squares -= pick(view.to(wide).square().sum(-1), tuples[..., m])
        return squares * (self.strength / 2)

    def field_logits(self, l: int, fields: Tensor) -> Tensor:
        """√(2a) ⟨g, r_l⟩ - a |r_l|² for fields g (b, s, d): (b, s, n_l), new."""
        offset = self.views[l].square().sum(-1).unsqueeze(1) * (-self.strength / 2)
        return torch.baddbmm(offset, fields, self.views[l].transpose(1, 2), alpha=self.strength**0.5)


class PairKernel(LogKernel):
    """Any cost that is a sum over pairs of views: rows of n x n matrices, O(k n) per conditional."""

    def __init__(self, problem: PairwiseProblem, epsilon: float):
        self.sizes = problem.sizes
        self.itemsize, self.features = problem.dtype.itemsize, 0
        kernels = problem.log_kernels(epsilon, problem.dtype)
        self.exponents = problem.by_edge(kernels.groups)
        shape, wide = (problem.num_batch, sum(problem.sizes)), vector_dtype(problem.device)
        if kernels.shift is None:
            self.shift = torch.zeros(shape, dtype=wide, device=problem.device)
        else:
            self.shift = kernels.shift.to(wide) / epsilon

    def reach(self) -> float:
        return sum(map(largest_magnitude, self.exponents.values()))

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        shape = (*tuples.shape[:2], self.sizes[l])
        total = torch.zeros(shape, dtype=next(iter(self.exponents.values())).dtype, device=tuples.device)
        for (first, second), matrix in self.exponents.items():
            if first == l:
                total += pick(matrix.transpose(1, 2), tuples[..., second])
            elif second == l:
                total += pick(matrix, tuples[..., first])
        return total

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        total = torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)
        for (first, second), matrix in self.exponents.items():
            if l not in (first, second):
                flat = tuples[..., first] * self.sizes[second] + tuples[..., second]
                total += matrix.flatten(1).gather(1, flat)
        return total


class LogResultantKernel(LogKernel):
    """Circular standard deviation: L(t) = log(|mean_l x_l|²) / eps, clamped like the cost.

    Every term contains view l. As for the variance, the other entries contribute only through their sum:
    |y + x_i|² = |y|² + 2⟨y, x_i⟩ + |x_i|², one matrix product for all points i.
    """

    def __init__(self, problem: CircularStdProblem, epsilon: float):
        self.sizes = problem.sizes
        self.epsilon = epsilon / problem.factor
        self.itemsize, self.features = problem.dtype.itemsize, problem.tensors[0].shape[-1]
        points = problem.tensors[0].detach() / problem.k
        self.views = list(points.split(list(problem.sizes), 1))
        self.shift = torch.zeros(points.shape[:2], dtype=vector_dtype(points.device), device=points.device)

    def reach(self) -> float:
        largest = 2 * float(_longest(self.views).double().log())
        return max(largest, -math.log(RESULTANT_FLOOR)) / self.epsilon

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        squares = squared_sums(resultant(self.views, tuples, without=l), self.views[l])
        return squares.clamp_(min=RESULTANT_FLOOR).log_().div_(self.epsilon)

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        return torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)


class ProductKernel(LogKernel):
    """Multilinear product: L(t) = (s / eps) Σ_j Π_l x_l[t_l][j]. Every term contains view l.

    The other entries of a tuple contribute only through their product, so a conditional costs O(n d) for every k.
    """

    has_maxima = True

    def __init__(self, problem: ProductProblem, epsilon: float):
        self.sizes = problem.sizes
        self.strength = problem.scale / epsilon
        points = problem.tensors[0].detach()
        self.itemsize, self.features = problem.dtype.itemsize, points.shape[-1]
        self.views = list(points.split(list(problem.sizes), 1))
        self.shift = torch.zeros(points.shape[:2], dtype=vector_dtype(points.device), device=points.device)

    def reach(self) -> float:
        # |Σ_j Π_l x_l[j]| ≤ |x_1| |x_2| Π_{l > 2} max_j |x_l[j]|.
        lengths = [float(torch.linalg.vector_norm(view, dim=-1).max()) for view in self.views[:2]]
        return self.strength * math.prod(lengths) * math.prod(map(largest_magnitude, self.views[2:]))

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        others = [m for m in range(len(self.sizes)) if m != l]
        product = pick(self.views[others[0]], tuples[..., others[0]])
        for m in others[1:]:
            product *= pick(self.views[m], tuples[..., m])
        return torch.bmm(product.mul_(self.strength), self.views[l].transpose(1, 2))

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        return torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)


class SumKernel(LogKernel):
    """Sum of costs: the sum of the log kernels of its terms."""

    def __init__(self, problem: SumProblem, epsilon: float):
        self.sizes = problem.sizes
        self.terms = [log_kernel_of(part, epsilon) for part in problem.parts]
        self.has_maxima = any(term.has_maxima for term in self.terms)
        self.itemsize, self.features = problem.dtype.itemsize, max(term.features for term in self.terms)
        # The table of a term exists beside that of the sum.
        self.features += max(self.sizes)
        self.shift = torch.stack([term.shift for term in self.terms]).sum(0)

    def reach(self) -> float:
        return sum(term.reach() for term in self.terms)

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        first, *others = self.terms
        total = first.conditional(l, tuples)
        for term in others:
            total += term.conditional(l, tuples)
        return total

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        return torch.stack([term.rest(l, tuples) for term in self.terms]).sum(0)


def _longest(views: Sequence[Tensor]) -> Tensor:
    """Return an upper bound on |Σ_l x_l| over all tuples."""
    return torch.stack([torch.linalg.vector_norm(view, dim=-1).max() for view in views]).sum()


# Classes by `Problem.kernel_form`.
KERNELS: dict[str, Callable[[Any, float], LogKernel]] = {
    "resultant": ResultantKernel,
    "log-resultant": LogResultantKernel,
    "product": ProductKernel,
    "pairs": PairKernel,
    "sum": SumKernel,
}


def log_kernel_of(problem: Problem, epsilon: float) -> LogKernel:
    if problem.kernel_form is None:
        raise ValueError(
            f"cost must be a named cost or a sum of named costs with solver='sampled', got {type(problem).__name__}: "
            "use solver='dense'."
        )
    return KERNELS[problem.kernel_form](problem, epsilon)


def resultant(views: Sequence[Tensor], tuples: Tensor, *, without: int | None = None) -> Tensor:
    """Σ_m x_m[t_m] of the tuples, over all views or all but one: (b, s, d), new."""
    chosen = [m for m in range(len(views)) if m != without]
    total = pick(views[chosen[0]], tuples[..., chosen[0]])
    for m in chosen[1:]:
        total += pick(views[m], tuples[..., m])
    return total


def squared_sums(left: Tensor, right: Tensor) -> Tensor:
    """|y_s + x_i|² for y (b, s, d) and x (b, n, d): (b, s, n), new."""
    out = torch.baddbmm(right.square().sum(-1).unsqueeze(1), left, right.transpose(1, 2), alpha=2)
    return out.add_(left.square().sum(-1).unsqueeze(2))


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of (b, n, …) by index (b, s, …): (b, s, …, …)."""
    if table.shape[0] == 1:
        return table[0][index[0]].unsqueeze(0)
    batch = torch.arange(table.shape[0], device=table.device)
    return table[batch.reshape(-1, *[1] * (index.ndim - 1)), index]
