"""Log kernels: exponents of single tuples, without the cost tensor.

The log kernel of a tuple t is L(t) = -C(t) / eps up to terms of one view, which change neither the coupling nor the
gap. These terms are stored as `shift`: if h are the log scalings for L, the potentials for C are eps (h + shift).
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
from m3g.solvers.sampled.recomputed_rows import chunk_rows, gather_rows
from m3g.solvers.shared.precision import largest_magnitude


class LogKernel(ABC):
    """Log kernel L of a problem, evaluated on tuples t (b, s, k).

    For every view l, L(t) = conditional(l, t)[t_l] + rest(l, t).

    Attributes:
        shift: (b, N), with L = -C / eps + ⊕shift; in units of epsilon, unlike `LogKernels.shift`.
        itemsize: bytes per number of a conditional.
        num_temporaries: number of temporary numbers per tuple while a conditional is computed, for memory estimates.
        has_products: whether the kernel is an expectation of products over the views (product_kernel.py).
        has_local_maxima: whether the kernel may have many local maxima besides the true tuples, like the kernel of the
            multilinear product, because a product does not change if two of its factors change their signs. Gibbs
            chains, which change one view at a time, do not reach all of these maxima. Proposals then have uniform
            components (proposals.py), the cross-check has a larger minimum number of chains, and the result is trusted
            only for larger epsilons (rounds.py).
    """

    sizes: tuple[int, ...]
    shift: Tensor
    itemsize: int
    num_temporaries: int
    has_products = False
    has_local_maxima = False

    def sharpness(self) -> Tensor:
        """Return the mean squared distance between the means of two unit normal distributions of product_kernel.py.

        Each of these means is the vector √(2a) Σ_l r_l of a tuple (`ResultantKernel`), and the two tuples differ in one
        view. In a batch, return the maximum over the problems. If it is large, the distributions do not overlap.
        """
        raise NotImplementedError("this kernel has no products")

    @abstractmethod
    def reach(self) -> float:
        """Return an upper bound on |L(t)|."""

    @abstractmethod
    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        """Return the terms of L that contain view l, for all points of l given the rest of t.

        The result is a new tensor (b, s, n_l), which the caller may overwrite.
        """

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        """Return the terms of L that do not contain view l: (b, s), in float64 if the device supports it.

        If there are no such terms, the result is 0.
        """
        return torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)


class ResultantKernel(LogKernel):
    """Circular variance: L(t) = 2a Σ_{l<m} ⟨r_l, r_m⟩, with a = factor / (k² eps) and centred views r_l = x_l - μ_l.

    A conditional depends on the other entries of a tuple only through their sum, and takes O((n + k) d) per tuple.
    `strength` is 2a.
    """

    has_products = True

    def __init__(self, problem: CircularVarianceProblem, epsilon: float):
        self.sizes = problem.sizes
        self.strength = 2 * problem.factor / (problem.k**2 * epsilon)
        self.itemsize, self.num_temporaries = problem.dtype.itemsize, problem.tensors[0].shape[-1]
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
        """Return the mean of 2a |r_i - r_j|² over views and pairs of points; in a batch, its maximum."""
        squares = [view.square().sum(-1).mean(1) for view in self.views]
        return 2 * self.strength * torch.stack(squares).mean(0).max()

    def reach(self) -> float:
        return self.strength / 2 * float(_length_bound(self.views).square())

    def resultant(self, tuples: Tensor) -> Tensor:
        """Return Σ_l r_l of the tuples: (b, s, d)."""
        return resultant(self.views, tuples)

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        others = resultant(self.views, tuples, without=l)
        return torch.bmm(others.mul_(self.strength), self.views[l].transpose(1, 2))

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        wide = vector_dtype(tuples.device)
        step = chunk_rows(tuples.shape[1], 3 * wide.itemsize * tuples.shape[0] * self.num_temporaries, tuples.device)
        squares = torch.cat(
            [resultant(self.views, chunk, without=l).to(wide).square().sum(-1) for chunk in tuples.split(step, 1)], 1
        )
        for m, view in enumerate(self.views):
            if m != l:
                squares -= gather_rows(view.to(wide).square().sum(-1), tuples[..., m])
        return squares * (self.strength / 2)

    def field_logits(self, l: int, fields: Tensor) -> Tensor:
        """Return √(2a) ⟨g, r_l⟩ - a |r_l|² for samples g of product_kernel.py (b, s, d): a new (b, s, n_l)."""
        offset = self.views[l].square().sum(-1).unsqueeze(1) * (-self.strength / 2)
        return torch.baddbmm(offset, fields, self.views[l].transpose(1, 2), alpha=self.strength**0.5)


class PairKernel(LogKernel):
    """Sum over pairs of views: a conditional is a sum of rows of up to k - 1 matrices, O(k n)."""

    def __init__(self, problem: PairwiseProblem, epsilon: float):
        self.sizes = problem.sizes
        self.itemsize, self.num_temporaries = problem.dtype.itemsize, 0
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
                total += gather_rows(matrix.transpose(1, 2), tuples[..., second])
            elif second == l:
                total += gather_rows(matrix, tuples[..., first])
        return total

    def rest(self, l: int, tuples: Tensor) -> Tensor:
        total = torch.zeros(tuples.shape[:2], dtype=vector_dtype(tuples.device), device=tuples.device)
        for (first, second), matrix in self.exponents.items():
            if l not in (first, second):
                flat = tuples[..., first] * self.sizes[second] + tuples[..., second]
                total += matrix.flatten(1).gather(1, flat)
        return total


class LogResultantKernel(LogKernel):
    """Circular standard deviation: L(t) = factor · log(|mean_l x_l|²) / eps, clamped like the cost.

    `rest` is 0, because L is not a sum. A conditional depends on the other entries only through their sum y. For all
    points i of the view, |y + x_i|² = |y|² + 2⟨y, x_i⟩ + |x_i|² requires one matrix product. `views` are divided by k.
    """

    def __init__(self, problem: CircularStdProblem, epsilon: float):
        self.sizes = problem.sizes
        self.scaled_epsilon = epsilon / problem.factor
        self.itemsize, self.num_temporaries = problem.dtype.itemsize, problem.tensors[0].shape[-1]
        points = problem.tensors[0].detach() / problem.k
        self.views = list(points.split(list(problem.sizes), 1))
        self.shift = torch.zeros(points.shape[:2], dtype=vector_dtype(points.device), device=points.device)

    def reach(self) -> float:
        largest = 2 * float(_length_bound(self.views).double().log())
        return max(largest, -math.log(RESULTANT_FLOOR)) / self.scaled_epsilon

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        squares = squared_sums(resultant(self.views, tuples, without=l), self.views[l])
        return squares.clamp_(min=RESULTANT_FLOOR).log_().div_(self.scaled_epsilon)


class MultilinearKernel(LogKernel):
    """Multilinear product: L(t) = (scale / eps) Σ_j Π_l x_l[t_l][j] over the features j.

    A conditional depends on the other entries only through their product, and takes O((n + k) d) per tuple. `rest` is
    0, because every term contains view l.
    """

    has_local_maxima = True

    def __init__(self, problem: ProductProblem, epsilon: float):
        self.sizes = problem.sizes
        self.strength = problem.scale / epsilon
        points = problem.tensors[0].detach()
        self.itemsize, self.num_temporaries = problem.dtype.itemsize, points.shape[-1]
        self.views = list(points.split(list(problem.sizes), 1))
        self.shift = torch.zeros(points.shape[:2], dtype=vector_dtype(points.device), device=points.device)

    def reach(self) -> float:
        # |Σ_j Π_l x_l[j]| ≤ |x_1| |x_2| Π_{l > 2} max_j |x_l[j]|.
        lengths = [float(torch.linalg.vector_norm(view, dim=-1).max()) for view in self.views[:2]]
        return self.strength * math.prod(lengths) * math.prod(map(largest_magnitude, self.views[2:]))

    def conditional(self, l: int, tuples: Tensor) -> Tensor:
        others = [m for m in range(len(self.sizes)) if m != l]
        product = gather_rows(self.views[others[0]], tuples[..., others[0]])
        for m in others[1:]:
            product *= gather_rows(self.views[m], tuples[..., m])
        return torch.bmm(product.mul_(self.strength), self.views[l].transpose(1, 2))


class SumKernel(LogKernel):
    """Sum of costs: the sum of their log kernels."""

    def __init__(self, problem: SumProblem, epsilon: float):
        self.sizes = problem.sizes
        self.terms = [log_kernel_of(part, epsilon) for part in problem.parts]
        self.has_local_maxima = any(term.has_local_maxima for term in self.terms)
        self.itemsize, self.num_temporaries = problem.dtype.itemsize, max(term.num_temporaries for term in self.terms)
        # While a term is added, its conditional is in memory besides that of the sum.
        self.num_temporaries += max(self.sizes)
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


def _length_bound(views: Sequence[Tensor]) -> Tensor:
    """Return an upper bound on |Σ_l x_l| over all tuples."""
    return torch.stack([torch.linalg.vector_norm(view, dim=-1).max() for view in views]).sum()


# Log kernels by `Problem.kernel_form`.
KERNELS: dict[str, Callable[[Any, float], LogKernel]] = {
    "resultant": ResultantKernel,
    "log-resultant": LogResultantKernel,
    "product": MultilinearKernel,
    "pairs": PairKernel,
    "sum": SumKernel,
}


def log_kernel_of(problem: Problem, epsilon: float) -> LogKernel:
    """Return the log kernel of a problem; raise if the cost of a single tuple has no known structure."""
    if problem.kernel_form is None:
        raise ValueError(
            "cost must be a named cost, a PairwiseCost or a sum of these with solver='sampled', "
            f"got {type(problem).__name__}: use solver='dense'."
        )
    return KERNELS[problem.kernel_form](problem, epsilon)


def resultant(views: Sequence[Tensor], tuples: Tensor, *, without: int | None = None) -> Tensor:
    """Return Σ_m x_m[t_m] of the tuples over all views, or all but one, as a new tensor (b, s, d)."""
    chosen = [m for m in range(len(views)) if m != without]
    total = gather_rows(views[chosen[0]], tuples[..., chosen[0]])
    for m in chosen[1:]:
        total += gather_rows(views[m], tuples[..., m])
    return total


def squared_sums(left: Tensor, right: Tensor) -> Tensor:
    """Return |y_s + x_i|² for y (b, s, d) and x (b, n, d) as a new tensor (b, s, n)."""
    out = torch.baddbmm(right.square().sum(-1).unsqueeze(1), left, right.transpose(1, 2), alpha=2)
    return out.add_(left.square().sum(-1).unsqueeze(2))
