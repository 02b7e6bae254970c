"""The paper's two costs: functions of the length of the mean of k unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from m3g import _checks
from m3g._checks import Views
from m3g.costs.problem import Coupling, PairwiseProblem, Problem, all_edges, along

RESULTANT_FLOOR = 1e-6


@dataclass(frozen=True)
class CircularVariance:
    """c(z_1, …, z_k) = 1 - |mean_l z_l|², the default cost of the matching gap.

    On unit vectors it is a sum over pairs, (1/k²) Σ_{l<m} |z_l - z_m|².

    Args:
        scale: "definition" is the formula above. "algorithm2" multiplies it by (2k/(k-1))², the factor of the
            paper's Algorithm 2: 16 for k = 2, 9 for k = 3. It is the same as an epsilon that much smaller, and is
            there to compare with published values of epsilon.

    Example:
        >>> import torch, m3g
        >>> views = torch.eye(3).expand(3, 3, 3)  # three identical views of three orthogonal points
        >>> problem = m3g.CircularVariance()(views)
        >>> problem.dense()[0, 0, 0, :2].tolist()  # one and the same point; one view differs
        [0.0, 0.4444444179534912]
    """

    scale: str = "definition"

    def __post_init__(self) -> None:
        _checks.one_of("scale", self.scale, ("definition", "algorithm2"))

    def factor(self, k: int) -> float:
        return 1.0 if self.scale == "definition" else (2 * k / (k - 1)) ** 2

    def __call__(self, views: Views) -> CircularVarianceProblem:
        parts, batch = flatten_batch(views)
        return CircularVarianceProblem(parts, batch=batch, factor=self.factor(len(parts)))


@dataclass(frozen=True)
class CircularStd:
    """c(z_1, …, z_k) = -log |mean_l z_l|², the circular standard deviation of the paper's ablation.

    It grows without bound as the mean vanishes, so the squared length is clamped from below at 1e-6 (a cost of at
    most 13.8); where it is clamped the gradient is zero. Not a sum over pairs: needs a dense solver.

    Example:
        >>> import torch, m3g
        >>> views = torch.eye(3).expand(2, 3, 3)
        >>> round(float(m3g.CircularStd()(views).dense()[0, 0, 1]), 4)  # |mean|² = 1/2
        0.6931
    """

    def __call__(self, views: Views) -> CircularStdProblem:
        parts, batch = flatten_batch(views)
        return CircularStdProblem(parts, batch=batch)


def flatten_batch(views: Views) -> tuple[list[Tensor], tuple[int, ...]]:
    """k tensors (b, n_l, d) in at least float32, and the batch shape they came with."""
    parts = _checks.view_sequence(views)
    batch = tuple(parts[0].shape[:-2])
    dtype = _checks.working_dtype(parts[0].dtype)
    return [part.to(dtype).reshape(-1, *part.shape[-2:]) for part in parts], batch


def resultant_gradient(
    views: Sequence[Tensor], pairs: dict[tuple[int, int], Tensor], marginals: Sequence[Tensor], scale: float
) -> tuple[Tensor, ...]:
    """Derivative of `scale` · Σ_tuples Q |mean z|² for fixed weights Q known by their marginals."""
    k = len(views)
    out = []
    for l, view in enumerate(views):
        total = marginals[l].unsqueeze(-1) * view
        for m, other in enumerate(views):
            if m > l:
                total = torch.baddbmm(total, pairs[l, m], other)
            elif m < l:
                total = torch.baddbmm(total, pairs[m, l].transpose(1, 2), other)
        out.append(total * (2 * scale / k**2))
    return tuple(out)


class CircularVarianceProblem(PairwiseProblem):
    """1 - |mean|² as constants, squared norms (unary) and inner products between views (pairwise)."""

    def __init__(self, views: Sequence[Tensor], *, batch: tuple[int, ...], factor: float):
        self.tensors = tuple(views)
        self.sizes = tuple(view.shape[1] for view in views)
        self.batch = batch
        self.edges = all_edges(len(views))
        self.factor = factor
        self.constant = factor

    @cached_property
    def stacked(self) -> Tensor | None:  # type: ignore[override]
        if len(set(self.sizes)) > 1:
            return None
        with torch.no_grad():
            views = torch.stack(self.tensors, 1)
            left = views[:, [l for l, _ in self.edges]]
            right = views[:, [m for _, m in self.edges]]
            return left @ right.transpose(-1, -2) * (-2 * self.factor / self.k**2)

    @cached_property
    def costs(self) -> list[Tensor]:  # type: ignore[override]
        if self.stacked is not None:
            return list(self.stacked.unbind(1))
        with torch.no_grad():
            views = self.tensors
            scale = -2 * self.factor / self.k**2
            return [views[l] @ views[m].transpose(1, 2) * scale for l, m in self.edges]

    def unary(self, l: int) -> Tensor:
        return self.tensors[l].detach().square().sum(-1) * (-self.factor / self.k**2)

    def matched(self) -> Tensor:
        mean = torch.stack(self.tensors).mean(0)
        return self.factor * (1 - mean.square().sum(-1).mean(-1))

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        pairs = {edge: coupling.pair(*edge) for edge in self.edges}
        marginals = [coupling.marginal(l) for l in range(self.k)]
        return resultant_gradient(self.tensors, pairs, marginals, -self.factor)


class CircularStdProblem(Problem):
    """-log |mean|²: one dense tensor built from the inner products between views, never n^k d."""

    def __init__(self, views: Sequence[Tensor], *, batch: tuple[int, ...]):
        self.tensors = tuple(views)
        self.sizes = tuple(view.shape[1] for view in views)
        self.batch = batch
        self._variance = CircularVarianceProblem(views, batch=batch, factor=1.0)

    def _squared_resultant(self) -> Tensor:
        return self._variance.dense().neg_().add_(1)

    def dense(self) -> Tensor:
        return self._squared_resultant().clamp_(min=RESULTANT_FLOOR).log_().neg_()

    def matched(self) -> Tensor:
        mean = torch.stack(self.tensors).mean(0)
        return -mean.square().sum(-1).clamp(min=RESULTANT_FLOOR).log().mean(-1)

    def gradient(self, coupling: Coupling) -> tuple[Tensor, ...]:
        squared = self._squared_resultant()
        for rows, slab in coupling.rows():
            part = squared[:, rows]
            inside = part > RESULTANT_FLOOR
            part.copy_(torch.where(inside, slab / part.clamp(min=RESULTANT_FLOOR), 0.0))
        k = self.k
        pairs = {
            (l, m): squared.sum([a + 1 for a in range(k) if a not in (l, m)]) if k > 2 else squared
            for l, m in all_edges(k)
        }
        marginals = [squared.sum([a + 1 for a in range(k) if a != l]) for l in range(k)]
        return resultant_gradient(self.tensors, pairs, marginals, -1.0)


__all__ = ["CircularStd", "CircularVariance", "along"]
