"""The two costs of the paper, functions of the length of the mean of k unit vectors (Eq. 12 and 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.coupling import Coupling, SquaredMeans, TensorCoupling, all_edges, all_equal, mean_products
from m3g.costs.pairwise_problem import LogKernels, PairwiseProblem
from m3g.costs.problem import Cost, Problem, vector_dtype

# Minimum of the squared length of the mean in the circular standard deviation.
RESULTANT_FLOOR = 1e-6


@dataclass(frozen=True)
class CircularVariance(Cost):
    r"""Circular variance of a tuple (Eq. 12 of the paper), the default cost of the matching gap.

    .. math::
        c(z_1, \dots, z_k) = 1 - \Bigl\lvert \tfrac1k \sum_l z_l \Bigr\rvert^2
        = \tfrac{1}{k^2} \sum_{l<m} \lvert z_l - z_m \rvert^2

    The second form, a sum over pairs of views, holds for unit vectors. It allows solver="factored".

    Shapes: views (..., k, n, d), or k tensors (..., n_l, d); costs (b, n_1, …, n_k) for a batch of b problems.

    Complexity: O(k² n² d) for the inner products of all pairs of points, and for the gradient.

    Args:
        scale: "definition" is the formula above. "algorithm2" multiplies it by (2k/(k-1))², as in the paper's
            Algorithm 2: by 16 for k = 2, by 9 for k = 3. With "definition", the same coupling requires an epsilon
            divided by this factor. The paper does not state to which of the two scales its values of epsilon refer.

    Example:
        >>> import torch, m3g
        >>> views = torch.eye(3).expand(3, 3, 3)  # three identical views of three orthogonal points
        >>> problem = m3g.CircularVariance()(views)
        >>> [round(c, 4) for c in problem.dense()[0, 0, 0, :2].tolist()]  # a true tuple; one view differs
        [0.0, 0.4444]

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    scale: str = "definition"

    def __post_init__(self) -> None:
        _checks.one_of("scale", self.scale, ("definition", "algorithm2"))

    def factor(self, k: int) -> float:
        """Return the factor of the scale for k views."""
        return 1.0 if self.scale == "definition" else (2 * k / (k - 1)) ** 2

    @property
    def linear(self) -> bool:
        return True

    def slope(self, k: int) -> float:
        """Return factor · 2 (k - 1) / k², the slope of factor · |mean|² in ⟨z, q⟩ (see `Cost.slope`)."""
        return self.factor(k) * 2 * (k - 1) / k**2

    def query(self, views: Tensor, view: int, *, mask: Tensor | None = None) -> Tensor:
        """Return the mean of the other views of each object, without missing points; zero if all are missing."""
        weights = torch.ones_like(views[..., :1]) if mask is None else mask.unsqueeze(-1).to(views.dtype)
        others = [m for m in range(views.shape[-3]) if m != view]
        weights = weights[..., others, :, :]
        rest = torch.where(weights > 0, views[..., others, :, :], 0.0)
        return rest.sum(-3) / weights.sum(-3).clamp(min=1)

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> CircularVarianceProblem:
        points, sizes, batch = concatenated(views)
        return CircularVarianceProblem(points, sizes=sizes, batch=batch, factor=self.factor(len(sizes)), unit=unit)


@dataclass(frozen=True)
class CircularStd(Cost):
    r"""Circular standard deviation of a tuple (Eq. 13 of the paper).

    .. math:: c(z_1, \dots, z_k) = -\log \Bigl\lvert \tfrac1k \sum_l z_l \Bigr\rvert^2

    The cost diverges as the mean vanishes. The squared length of the mean is therefore clamped to at least 1e-6, which
    limits the cost to 13.8. The gradient of clamped tuples is zero. The cost is not a sum over pairs: use
    solver="dense" if n^k numbers fit into memory, and "sampled" otherwise.

    Shapes: views (..., k, n, d), or k tensors (..., n_l, d); costs (b, n_1, …, n_k) for a batch of b problems.

    Complexity: O(n^k + k² n² d) for the cost tensor and for the gradient.

    Example:
        >>> import torch, m3g
        >>> views = torch.eye(3).expand(2, 3, 3)
        >>> round(float(m3g.CircularStd()(views).dense()[0, 0, 1]), 4)  # |mean|² = 1/2
        0.6931

    Reference: Piran et al., ICML 2024 :cite:`piran2024`.
    """

    def slope(self, k: int) -> float:
        """Return the slope of the circular variance: at k equal points, both costs have the same derivative."""
        return 2 * (k - 1) / k**2

    def __call__(self, views: Views, *, mask: Tensor | None = None, unit: bool = False) -> CircularStdProblem:
        points, sizes, batch = concatenated(views)
        return CircularStdProblem(points, sizes=sizes, batch=batch)


def flatten_batch(views: Views) -> tuple[list[Tensor], tuple[int, ...]]:
    """Return the views as k tensors (b, n_l, d) of at least float32, and the batch shape."""
    parts = _checks.view_sequence(views)
    batch = tuple(parts[0].shape[:-2])
    dtype = _checks.working_dtype(parts[0].dtype)
    return [part.to(dtype).reshape(-1, *part.shape[-2:]) for part in parts], batch


def concatenated(views: Views) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """Concatenate the points of all views to (b, N, d); also return the sizes n_l and the batch shape."""
    if isinstance(views, Tensor) and views.ndim >= 3:
        _checks.stacked_views(views)
        k, n, d = views.shape[-3:]
        points = _checks.as_working(views).reshape(-1, k * n, d)
        return points, (n,) * k, tuple(views.shape[:-3])
    parts, batch = flatten_batch(views)
    return torch.cat(parts, 1), tuple(part.shape[1] for part in parts), batch


def select_points(points: Tensor, sizes: Sequence[int], rows: Sequence[Tensor]) -> Tensor:
    """Return the points `rows[l]` of each view l, from the concatenated points (b, N, d) of all views."""
    starts = [sum(sizes[:l]) for l in range(len(sizes))]
    return points.index_select(1, torch.cat([start + chosen for start, chosen in zip(starts, rows)]))


class CircularVarianceProblem(PairwiseProblem):
    """Problem of the circular variance: C = factor · (1 - |mean|²).

    The cost is a sum of inner products of pairs of views, plus terms of one view each. `tensors` is one tensor
    (b, N, d), the concatenated points of all views.
    """

    kernel_form = "resultant"

    def __init__(
        self, points: Tensor, *, sizes: tuple[int, ...], batch: tuple[int, ...], factor: float, unit: bool = False
    ):
        self.tensors = (points,)
        self.sizes = sizes
        self.batch = batch
        self.edges = all_edges(len(sizes))
        self.factor = factor
        self.unit = unit

    def select(self, rows: Sequence[Tensor]) -> CircularVarianceProblem:
        out = self.with_tensors([select_points(self.tensors[0], self.sizes, rows)])
        out.sizes = tuple(map(len, rows))
        return out

    def log_kernels(self, epsilon: float, dtype: torch.dtype) -> LogKernels:
        """Return the exponents s (⟨x_l, x_m⟩ - 1) with s = 2 · factor / (k² eps); the shifts contain all other terms.

        For unit vectors, the exponents are at most 0, and the shifts are 0.
        """
        points = self.tensors[0].detach()
        points = points if points.dtype == dtype else points.to(dtype)
        k = len(self.sizes)
        pair_factor = self.factor / k**2
        scale = 2 * pair_factor / epsilon
        offset = points.new_full((1, 1, 1), -scale)
        parts = torch.split_with_sizes(points, self.sizes, 1)
        if all_equal(self.sizes) and k > 2:
            left, right = torch.cat([parts[l] for l, _ in self.edges]), torch.cat([parts[m] for _, m in self.edges])
            groups = [torch.baddbmm(offset, left, right.mT, alpha=scale)]
        else:
            groups = [torch.baddbmm(offset, parts[l], parts[m].mT, alpha=scale) for l, m in self.edges]
        if self.unit:
            return LogKernels(groups, None)
        # C = factor - (factor / k²) |Σ x|², and |Σ x|² = 2 Σ_{l<m} ⟨x_l, x_m⟩ + Σ_l |x_l|².
        wide = points.to(vector_dtype(points.device))
        return LogKernels(groups, pair_factor - pair_factor * torch.linalg.vecdot(wide, wide))

    def scaled(self, weight: float) -> CircularVarianceProblem:
        return Problem.scaled(self, weight)

    def matched(self) -> Tensor:
        points = self.tensors[0]
        total = points.view(points.shape[0], self.k, -1).sum(1)
        squared: Tensor = torch.linalg.vecdot(total, total)
        return self.factor - squared * (self.factor / (self.k**2 * self.sizes[0]))

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        return (coupling.pull(self.tensors[0]).mul_(-2 * self.factor / self.k**2),)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        scale = -2 * self.factor / self.k**2
        points, moves = (each.split(list(self.sizes), 1) for each in (self.tensors[0], directions[0]))
        return {
            (l, m): scale * (torch.bmm(moves[l], points[m].mT) + torch.bmm(points[l], moves[m].mT))
            for l, m in self.edges
        }

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.with_tensors(directions).gradient(coupling)


class CircularStdProblem(Problem):
    """Problem of the circular standard deviation: C = -factor · log |mean|².

    `tensors` is one tensor (b, N, d), the concatenated points of all views.
    """

    kernel_form = "log-resultant"
    new_slabs = True
    reads_coupling_once = True
    least_argument = RESULTANT_FLOOR

    def __init__(self, points: Tensor, *, sizes: tuple[int, ...], batch: tuple[int, ...]):
        self.tensors = (points,)
        self.sizes = sizes
        self.batch = batch

    def select(self, rows: Sequence[Tensor]) -> CircularStdProblem:
        out = self.with_tensors([select_points(self.tensors[0], self.sizes, rows)])
        out.sizes = tuple(map(len, rows))
        return out

    def log_argument(self) -> SquaredMeans:
        return SquaredMeans(self.tensors[0].detach(), self.sizes)

    def slab(self, rows: slice) -> Tensor:
        squares = self.log_argument().slab(rows)
        # Not `clamp_`, which has no batching rule for torch.vmap.
        return torch.threshold_(squares, RESULTANT_FLOOR, RESULTANT_FLOOR).log_().mul_(-self.factor)

    def matched(self) -> Tensor:
        points, k = self.tensors[0], self.k
        total = points.view(points.shape[0], k, -1, points.shape[2]).sum(1)
        squared = torch.threshold(torch.linalg.vecdot(total, total) / k**2, RESULTANT_FLOOR, RESULTANT_FLOOR)
        return squared.log().mean(-1) * -self.factor

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        """Return d⟨P, C⟩ / dx. With R² = |mean|², d(-log R²) = -dR² / R² and dR² / dx_l = (2/k²) Σ_m x_m."""
        return (coupling.weighted_pull(self.tensors[0].detach(), _divisor).mul_(-2 * self.factor / self.k**2),)

    def change(self, directions: Sequence[Tensor]) -> dict[tuple[int, ...], Tensor]:
        return {tuple(range(self.k)): self.factor * self._unscaled_change(directions[0])}

    def _unscaled_change(self, moves: Tensor) -> Tensor:
        """Return the derivative of -log R² along `moves` (b, N, d): (b, n_1, …, n_k)."""
        points = self.tensors[0]
        return -2 * mean_products(points, moves, self.sizes) / _divisor(mean_products(points, points, self.sizes))

    def gradient_change(self, coupling: Coupling, directions: Sequence[Tensor]) -> tuple[Tensor, ...]:
        points, moves = self.tensors[0], directions[0]
        weighted = torch.cat([slab for _, slab in coupling.rows()], 1)
        weighted = weighted / _divisor(mean_products(points, points, self.sizes))  # P / R²
        weighted_change = weighted * self._unscaled_change(moves)
        pulled = TensorCoupling(weighted).pull(moves) + TensorCoupling(weighted_change).pull(points)
        return (pulled * (-2 * self.factor / self.k**2),)


def _divisor(squares: Tensor) -> Tensor:
    """Replace R² by infinity, in place, where the cost is clamped: a division by it then gives a gradient of zero."""
    return torch.threshold_(squares, RESULTANT_FLOOR, torch.inf)
