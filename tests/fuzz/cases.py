"""Random problems: costs, solvers, dtypes, weights, masses, scales, graphs, masks, batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np
import torch

import m3g
from fuzz.costs import Edge
from fuzz.dense import Array

COSTS = ("cv", "cv-algorithm2", "csd", "sqeuclidean", "cosine", "coulomb", "product", "0.5*cv + 0.5*product")
PAIRWISE = ("sqeuclidean", "cosine", "coulomb")
SOLVERS = ("auto", "factored", "dense", "sinkhorn", "sampled")
GRAPHS = ("complete", "chain", "star", "random")
MAX_TUPLES = 3000
MASSES = (1.0, 1e-9, 1e-4, 7.0, 1e4, 1e9)
SCALES = (1.0, 1e-20, 1e-8, 1e-3, 1e3, 1e8)


@dataclass(frozen=True)
class Case:
    """One problem, completely defined by its fields: equal fields give equal numbers."""

    seed: int
    sizes: tuple[int, ...]
    features: int
    noise: float
    cost: str
    epsilon: float
    tol: float
    dtype: str = "float64"
    solver: str = "auto"
    weights: str = "uniform"
    graph: str = "complete"
    batch: int = 0
    masked: bool = False
    loss: bool = False
    mass: float = 1.0
    scale: float = 1.0
    coincident: bool = False
    mixed: bool = False

    @property
    def k(self) -> int:
        return len(self.sizes)

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(text: str) -> Case:
        content = json.loads(text)
        return Case(**{**content, "sizes": tuple(content["sizes"])})


def draw(seed: int, *, solver: str | None = None) -> Case:
    """Return the random case of a seed."""
    rng = np.random.default_rng(seed)
    k = int(rng.choice([2, 3, 4, 5, 6, 7, 8], p=[0.2, 0.3, 0.2, 0.12, 0.08, 0.05, 0.05]))
    largest = max(2, int(MAX_TUPLES ** (1 / k)))
    equal = rng.random() < 0.5
    sizes = [int(rng.integers(1 if k < 5 else 2, min(largest, 40) + 1)) for _ in range(k)]
    if equal:
        sizes = [max(2, sizes[0])] * k
    chosen = solver or str(rng.choice(SOLVERS, p=[0.3, 0.25, 0.15, 0.15, 0.15]))
    cost = str(rng.choice(COSTS))
    dtype = str(rng.choice(["float64", "float32"]))
    pairs = cost in PAIRWISE
    loss = equal and rng.random() < 0.5
    extremes = np.random.default_rng([seed, 6])  # a separate stream, which leaves the other fields unchanged
    scale = float(extremes.choice(SCALES, p=[0.6, *[0.08] * 5]))
    unit = (k if pairs else 1.0) * (1.0 if loss else cost_unit(cost, scale, k))
    return Case(
        seed=seed,
        sizes=tuple(sizes),
        features=int(rng.integers(2, 17)),
        noise=float(rng.choice([0.1, 0.3, 1.0, 3.0])),
        cost=cost,
        epsilon=float(10 ** rng.uniform(-3, 0)) * unit,
        tol=float(rng.choice([1e-3, 1e-5] if dtype == "float32" else [1e-3, 1e-6, 1e-8])),
        dtype=dtype,
        solver=chosen,
        weights="uniform" if loss else str(rng.choice(["uniform", "random", "tiny", "zero"], p=[0.5, 0.3, 0.1, 0.1])),
        graph=str(rng.choice(["complete", "chain", "star", "random"], p=[0.6, 0.15, 0.15, 0.1]))
        if pairs
        else "complete",
        batch=2 if rng.random() < 0.15 else 0,
        masked=loss and rng.random() < 0.4,
        loss=loss,
        mass=1.0 if loss else float(extremes.choice(MASSES, p=[0.6, *[0.08] * 5])),
        scale=scale,
        coincident=bool(extremes.random() < 0.2),
        mixed=bool(extremes.random() < 0.15),
    )


def cost_unit(cost: str, scale: float, k: int) -> float:
    """Return the magnitude of cost differences for points of this length."""
    if cost == "sqeuclidean":
        return scale**2
    if cost == "coulomb":
        return min(1 / scale, 1e3)
    if cost == "product":
        return scale**k
    if cost.endswith("product"):
        return max(1.0, scale**2, scale**k)
    return max(1.0, scale**2) if cost.startswith("cv") else 1.0


def views_of(case: Case) -> list[torch.Tensor]:
    """Return k views (batch, n_l, d) of noisy objects: vectors of length `scale` in the dtype of the case.

    With coincident points, views share some points and contain some twice. With mixed types, the second view has the
    other type.
    """
    rng = np.random.default_rng(case.seed + 1)
    b = max(1, case.batch)
    objects = rng.normal(size=(b, max(case.sizes), case.features))
    out = []
    for l, n in enumerate(case.sizes):
        view = objects[:, :n] + case.noise * rng.normal(size=(b, n, case.features))
        view /= np.linalg.norm(view, axis=-1, keepdims=True)
        view *= case.scale
        if case.coincident:
            view[:, n // 2] = view[:, 0]
            if l > 0:
                shared = min(2, n, case.sizes[l - 1])
                view[:, :shared] = out[l - 1][:, :shared].double().numpy()
        dtype = {"float32": "float64", "float64": "float32"}[case.dtype] if case.mixed and l == 1 else case.dtype
        out.append(torch.tensor(view, dtype=getattr(torch, dtype)))
    return out


def weights_of(case: Case) -> list[Array] | None:
    if case.weights == "uniform":
        return None if case.mass == 1 else [np.full(n, case.mass / n) for n in case.sizes]
    rng = np.random.default_rng(case.seed + 2)
    out = []
    for n in case.sizes:
        weight = rng.uniform(0.2, 1.0, size=n)
        if case.weights == "tiny" and n > 1:
            weight[0] = 10.0 ** rng.uniform(-70, -5)
        if case.weights == "zero" and n > 1:
            weight[rng.integers(n)] = 0.0
        out.append(case.mass * weight / weight.sum())
    return out


def edges_of(case: Case) -> dict[Edge, float] | None:
    rng = np.random.default_rng(case.seed + 3)
    k = case.k
    if case.graph == "complete":
        return None
    if case.graph == "chain":
        return {(l, l + 1): float(rng.uniform(0.5, 2)) for l in range(k - 1)}
    if case.graph == "star":
        return {(0, l): float(rng.uniform(0.5, 2)) for l in range(1, k)}
    every = list(combinations(range(k), 2))
    kept = rng.permutation(len(every))[: max(1, len(every) // 2)]
    return {every[i]: float(rng.uniform(0.5, 2)) for i in sorted(kept)}


def cost_of(case: Case) -> object:
    edges = edges_of(case)
    return case.cost if edges is None else m3g.PairwiseCost(case.cost, weights=edges)


def solver_of(case: Case) -> object:
    if case.solver == "sampled":
        return m3g.Sampled(seed=case.seed % 2**31)
    # After this many sweeps Algorithm 1 reports that it did not converge; its result is checked nevertheless.
    return m3g.Sinkhorn(max_steps=1000) if case.solver == "sinkhorn" else case.solver


def simpler(case: Case) -> Iterator[Case]:
    """Yield simplified cases, the largest simplifications first."""
    if case.batch:
        yield replace(case, batch=0)
    if case.weights != "uniform":
        yield replace(case, weights="uniform")
    for plain in ({"mass": 1.0}, {"scale": 1.0}, {"coincident": False}, {"mixed": False}):
        if any(getattr(case, name) != value for name, value in plain.items()):
            simple = replace(case, **plain)
            if not case.loss and simple.scale != case.scale:
                simple = replace(simple, epsilon=case.epsilon / cost_unit(case.cost, case.scale, case.k))
            yield simple
    if case.masked:
        yield replace(case, masked=False)
    if case.k > 2:
        yield replace(case, sizes=case.sizes[:-1])
    for l, n in enumerate(case.sizes):
        fewer = [n - n // 2, n - 1] if n > 2 else [n - 1]
        for size in fewer:
            if 1 <= size < n:
                sizes = [size] * case.k if case.loss else [*case.sizes[:l], size, *case.sizes[l + 1 :]]
                yield replace(case, sizes=tuple(sizes))
    if case.features > 2:
        yield replace(case, features=2)
    if case.graph != "complete" and case.k > 2:
        yield replace(case, graph="complete")
    if case.dtype != "float64":
        yield replace(case, dtype="float64")
