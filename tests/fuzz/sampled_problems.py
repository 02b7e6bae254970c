"""Random problems for the sampled solver, each from one seed, and their values by a slow dense solve in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import m3g
from m3g.costs import Problem, all_edges

PLAIN = ("cv", "cv-algorithm2", "csd", "sqeuclidean", "cosine", "coulomb", "weighted")
PRODUCTS = ("product", "0.5*cv + 0.5*product", "cv[:0.5] + product[0.5:]", "csd + 0.3*cosine", "product + 0.5*csd")
COSTS = (*PLAIN, *PRODUCTS)
# Number of tuples of the largest problem; the reference sums over all of them.
MAX_TUPLES = 30_000


@dataclass(frozen=True)
class Case:
    """A problem and the settings with which it is solved; `seed` reproduces it."""

    seed: int
    cost: str
    views: list[Tensor]
    edges: dict[tuple[int, int], float] | None
    weights: list[Tensor] | None
    epsilon: float
    tol: float
    rank: int
    form: str = "auto"

    def problem(self, dtype: torch.dtype | None = None) -> Problem:
        if "[" in self.cost and dtype is not None:
            # Points are normalised within a range of features in their own dtype, before the solve.
            problem = self.problem()
            return problem.with_tensors([tensor.to(dtype) for tensor in problem.tensors])
        views = [view.to(dtype or view.dtype) for view in self.views]
        if self.cost == "weighted":
            return m3g.PairwiseCost("sqeuclidean", weights=self.edges)(views)
        return m3g.costs.as_cost(self.cost)(views)

    def solve(self, **settings: Any) -> m3g.Solution:
        solver = m3g.Sampled(**{"rank": self.rank, "form": self.form, "seed": self.seed, **settings})
        return m3g.solve(self.problem(), epsilon=self.epsilon, tol=self.tol, weights=self.weights, solver=solver)

    def __str__(self) -> str:
        sizes = "x".join(str(len(view)) for view in self.views)
        return (
            f"seed {self.seed}: {self.cost} {sizes} d={self.views[0].shape[1]} {self.views[0].dtype} "
            f"epsilon={self.epsilon:.4g} tol={self.tol:g} rank={self.rank} "
            f"form={self.form}{' weights' if self.weights else ''}"
        )


def draw(seed: int, *, max_tuples: int = MAX_TUPLES, costs: Sequence[str] = COSTS) -> Case:
    """k from 2 to 8, equal or unequal sizes, shared or unrelated points, weights or none, epsilon from .001 to 1."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 9))
    size = math.exp(rng.uniform(math.log(2.0**k), math.log(max_tuples))) ** (1 / k)
    sizes = [max(2, int(size))] * k
    if rng.random() < 0.5:
        sizes = [max(1, round(size * math.exp(rng.normal() * 0.4))) for _ in range(k)]
        while math.prod(sizes) > max_tuples:
            sizes[int(np.argmax(sizes))] -= 1
    d = int(rng.integers(2, 17))
    base, noise = rng.normal(size=(max(sizes), d)), float(rng.choice([0.1, 0.3, 1.0, 3.0]))
    dtype = torch.float32 if rng.random() < 0.3 else torch.float64
    views = [torch.tensor(base[:n] + noise * rng.normal(size=(n, d))).to(dtype) for n in sizes]
    cost = str(rng.choice(costs))
    if cost not in ("sqeuclidean", "coulomb", "weighted") or rng.random() < 0.7:
        views = [torch.nn.functional.normalize(view, dim=-1) for view in views]
    edges = {edge: float(rng.choice([0.0, 0.3, 1.0], p=[0.2, 0.3, 0.5])) for edge in all_edges(k)}
    edges[0, 1] = 1.0
    weights = None
    if rng.random() < 0.5:
        spread = float(rng.choice([0.3, 1.5]))
        drawn = [np.exp(spread * rng.normal(size=n)) for n in sizes]
        weights = [torch.tensor(weight / weight.sum()) for weight in drawn]
    return Case(
        seed=seed,
        cost=cost,
        views=views,
        edges=edges if cost == "weighted" else None,
        weights=weights,
        epsilon=float(10 ** rng.uniform(-3, 0)),
        tol=float(rng.choice([1e-3, 1e-6])),
        rank=4096 if rng.random() < 0.2 else int(2 ** rng.uniform(4, 11)),
        # An explicit form forces sampling if all tuples could be listed.
        form="tuples" if rng.random() < 0.4 else "auto",
    )


def draw_product(seed: int) -> Case:
    """k from 5 to 7 and few features, so that much of the mass is on few tuples without neighbours of large mass."""
    rng = np.random.default_rng(seed)
    k = int(rng.choice([5, 6, 6, 6, 7]))
    n, d = int(rng.integers(3, {5: 12, 6: 9, 7: 6}[k])), int(rng.choice([2, 3, 3, 3, 4, 8]))
    base, noise = rng.normal(size=(n, d)), float(rng.choice([0.3, 1.0, 1.0, 3.0]))
    views = [torch.tensor(base + noise * rng.normal(size=(n, d))) for _ in range(k)]
    return Case(
        seed=seed,
        cost="product",
        views=[torch.nn.functional.normalize(view, dim=-1).float() for view in views],
        edges=None,
        weights=None,
        epsilon=float(np.exp(rng.uniform(np.log(0.05), np.log(0.8)))),
        tol=1e-3,
        rank=int(2 ** rng.uniform(7, 11)),
        form="tuples",
    )


def true_value(case: Case, *, tol: float = 1e-10, max_steps: int = 300) -> float | None:
    """Return OT_eps, or None if the reference did not reach tol in max_steps."""
    cost = case.problem(torch.float64).dense()[0]
    sizes = list(cost.shape)
    target = [torch.full((n,), 1 / n, dtype=torch.float64) for n in sizes]
    if case.weights is not None:
        target = [weight.double() * (case.weights[0].sum() / weight.sum()) for weight in case.weights]
    potentials = [torch.zeros(n, dtype=torch.float64) for n in sizes]
    epsilon = max(case.epsilon, float(cost.max() - cost.min()) / 20)
    while True:
        last = epsilon == case.epsilon
        ascent = _Ascent(cost, target, epsilon, potentials)
        error = ascent.run(tol if last else 1e-3, max_steps)
        potentials = ascent.potentials
        if last:
            return ascent.height() - epsilon * float(target[0].sum()) if error <= tol else None
        epsilon = max(case.epsilon, epsilon / 3)


class _Ascent:
    """Sinkhorn sweeps in the log domain, each followed by a Newton step if that increases the dual further."""

    def __init__(self, cost: Tensor, target: list[Tensor], epsilon: float, potentials: list[Tensor]):
        self.cost, self.target, self.epsilon, self.potentials = cost, target, epsilon, list(potentials)
        self.k, self.sizes = cost.ndim, list(cost.shape)

    def _log(self) -> Tensor:
        total = -self.cost
        for l, f in enumerate(self.potentials):
            total = total + f.reshape([-1 if a == l else 1 for a in range(self.k)])
        return total / self.epsilon

    def _sum(self, tensor: Tensor, *kept: int) -> Tensor:
        summed = [a for a in range(self.k) if a not in kept]
        return tensor.sum(summed) if summed else tensor

    def height(self) -> float:
        return float(sum((f * a).sum() for f, a in zip(self.potentials, self.target)))

    def _sweep(self) -> None:
        for l in range(self.k):
            rest = [a for a in range(self.k) if a != l]
            self.potentials[l] = self.potentials[l] - self.epsilon * (
                self._log().logsumexp(rest) - self.target[l].log()
            )

    def run(self, tol: float, max_steps: int) -> float:
        error = math.inf
        for _ in range(max_steps):
            self._sweep()
            coupling = self._log().exp()
            marginals = [self._sum(coupling, l) for l in range(self.k)]
            error = float(sum((m - a).abs().sum() for m, a in zip(marginals, self.target)))
            if error <= tol:
                break
            self._newton(coupling, marginals)
        return error

    def _newton(self, coupling: Tensor, marginals: list[Tensor]) -> None:
        rows = []
        for l in range(self.k):
            parts = []
            for m in range(self.k):
                pair = self._sum(coupling, min(l, m), max(l, m)) if l != m else torch.diag(marginals[l])
                parts.append(pair if l <= m else pair.T)
            rows.append(torch.cat(parts, 1))
        matrix = torch.cat(rows)
        residual = torch.cat(self.target) - torch.cat(marginals)
        ridge = 1e-13 * matrix.diagonal() + 1e-300
        step = torch.linalg.lstsq(matrix + torch.diag(ridge), residual.unsqueeze(1), driver="gelsd").solution[:, 0]
        if not bool(torch.isfinite(step).all()):
            return
        old, before = self.potentials, self.height()
        length = min(1.0, 30 / float(step.abs().max().clamp_min(1e-300)))
        for _ in range(6):
            self.potentials = [f + length * self.epsilon * s for f, s in zip(old, step.split(self.sizes))]
            # Restore the mass, because dual values are comparable only for equal mass.
            log_mass = float(self._log().logsumexp(list(range(self.k)))) - math.log(float(self.target[0].sum()))
            self.potentials[0] = self.potentials[0] - self.epsilon * log_mass
            if self.height() >= before:
                return
            length /= 4
        self.potentials = old
