"""Literal, slow implementations of the paper's algorithms in float64: the reference for the fast code."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor


def noisy_views(k: int, n: int, d: int = 16, *, noise: float = 1.0, seed: int = 0, dtype=torch.float64) -> Tensor:
    """Views (k, n, d) of n objects: a shared base plus noise, on the sphere."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(1, n, d, generator=generator, dtype=torch.float64)
    views = base + noise * torch.randn(k, n, d, generator=generator, dtype=torch.float64)
    return (views / views.norm(dim=-1, keepdim=True)).to(dtype)


def cost_tensor(cost, views) -> Tensor:
    """Return the cost tensor, computed one k-tuple at a time: cost(z_1, …, z_k) of k vectors."""
    sizes = [len(view) for view in views]
    out = torch.empty(sizes, dtype=views[0].dtype)
    for index in itertools.product(*map(range, sizes)):
        out[index] = cost(*[view[i] for view, i in zip(views, index)])
    return out


def circular_variance(*z: Tensor) -> Tensor:
    return 1 - (sum(z) / len(z)).square().sum()


def algorithm_2(*z: Tensor) -> Tensor:
    """The scale of the paper's Algorithm 2."""
    k = len(z)
    return (2 / (k - 1)) ** 2 * sum((z[l] - z[m]).square().sum() for l in range(k) for m in range(l + 1, k))


def circular_std(*z: Tensor) -> Tensor:
    return -(sum(z) / len(z)).square().sum().clamp(min=1e-6).log()


def multilinear_product(*z: Tensor, present=None) -> Tensor:
    """-d^(p/2 - 1) Σ_j Π_l z_l[j] over the p views that are present."""
    kept = [x for l, x in enumerate(z) if present is None or present[l]]
    d = len(z[0])
    return -(d ** (len(kept) / 2 - 1)) * torch.stack(kept or [torch.ones(d, dtype=z[0].dtype)]).prod(0).sum()


def algorithm_1(cost: Tensor, epsilon: float, tol: float, weights: list[Tensor] | None = None):
    """Multi-marginal Sinkhorn on a dense tensor: coupling, regularised cost and potentials."""
    k = cost.ndim
    if weights is None:
        weights = [torch.full((n,), 1 / n, dtype=cost.dtype) for n in cost.shape]
    potentials = [torch.zeros(n, dtype=cost.dtype) for n in cost.shape]

    def exponent() -> Tensor:
        total = -cost
        for l, f in enumerate(potentials):
            total = total + f.reshape([-1 if a == l else 1 for a in range(k)])
        return total / epsilon

    for _ in range(100_000):
        for l in range(k):
            rest = [a for a in range(k) if a != l]
            potentials[l] = potentials[l] - epsilon * (exponent().logsumexp(rest) - weights[l].log())
        coupling = exponent().exp()
        error = sum((coupling.sum([a for a in range(k) if a != l]) - weights[l]).abs().sum() for l in range(k))
        if error < tol:
            break
    value = sum((f * a).sum() for f, a in zip(potentials, weights)) - epsilon * coupling.sum()
    return coupling, value, potentials


def assert_agrees(solution, cost: Tensor, epsilon: float, *, atol: float, weights: list[Tensor] | None = None) -> None:
    """Assert that a solution has the coupling, the value and the marginals of Algorithm 1."""
    coupling, value, _ = algorithm_1(cost.double(), epsilon, atol / 300, weights)
    assert solution.converged, solution
    close = {"atol": atol, "rtol": 0, "check_dtype": False}
    torch.testing.assert_close(solution.value, value, **close)
    torch.testing.assert_close(solution.coupling(), coupling, **close)
    k = cost.ndim
    for l in range(k):
        torch.testing.assert_close(solution.marginal(l), coupling.sum([a for a in range(k) if a != l]), **close)
    for l, m in itertools.permutations(range(k), 2):
        pair = coupling.sum([a for a in range(k) if a not in (l, m)]) if k > 2 else coupling
        torch.testing.assert_close(solution.pair_marginal(l, m), pair if l < m else pair.T, **close)


def objective(coupling: Tensor, cost: Tensor, epsilon: float) -> Tensor:
    """h(P, C) = ⟨P, C⟩ + eps ⟨P, log P - 1⟩."""
    return (coupling * cost).sum() + epsilon * (torch.xlogy(coupling, coupling) - coupling).sum()


def truth(n: int, k: int) -> Tensor:
    """The true matching J: 1/n on the diagonal."""
    out = torch.zeros((n,) * k, dtype=torch.float64)
    out[(torch.arange(n),) * k] = 1 / n
    return out


def gap(cost: Tensor, epsilon: float, tol: float = 1e-10) -> Tensor:
    """The gap by its definition: regularised cost of the true matching minus that of the best polymatching."""
    coupling, _, _ = algorithm_1(cost, epsilon, tol)
    return objective(truth(cost.shape[0], cost.ndim), cost, epsilon) - objective(coupling, cost, epsilon)


def pull(coupling: Tensor, points: Tensor) -> Tensor:
    """Σ_t P(t) Σ_m x_m[t_m] over the tuples t with every point, for concatenated points (N, d)."""
    starts = [sum(coupling.shape[:l]) for l in range(coupling.ndim)]
    out = torch.zeros_like(points)
    for t in itertools.product(*map(range, coupling.shape)):
        rows = [start + i for start, i in zip(starts, t)]
        for row in rows:
            out[row] += coupling[t] * points[rows].sum(0)
    return out


def best_polymatching(cost: Tensor) -> float:
    """Minimum of the mean matched cost over all k-tuples of permutations, by exhaustive search."""
    n, k = cost.shape[0], cost.ndim
    table = cost.numpy()
    best = math.inf
    for permutations in itertools.product(itertools.permutations(range(n)), repeat=k - 1):
        best = min(best, float(np.mean(table[(np.arange(n), *map(list, permutations))])))
    return best
