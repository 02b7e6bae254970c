"""Solves that several processes share; `compute` runs in each of them."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import torch

import m3g
from m3g.solvers.factored import contraction
from m3g.solvers.factored import sharded as contracted
from m3g.solvers.sharded import Sharded
from m3g.solvers.shared import newton

SIZES = {2: 24, 3: 16, 4: 12, 5: 8}
EXACT = ("factored", "newton", "dense", "slabs")
LARGE = [(newton, "DIRECT_SIZE"), (contracted, "EXCHANGED_SIZE"), (contraction, "SLAB_BYTES")]
SOLVERS = {
    "factored": m3g.Factored(),
    "newton": m3g.Factored(),
    "dense": m3g.Dense(),
    "slabs": m3g.Dense(memory_limit=1),
    "products": m3g.Sampled(rank=64, form="products", seed=0),
    "tuples": m3g.Sampled(rank=512, form="tuples", seed=0),
    "listed": m3g.Sampled(rank=64, seed=0),
}


def points(k, n, *, batch=(), seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    objects = torch.randn(*batch, 1, n, 6, generator=generator, dtype=dtype)
    noise = torch.randn(*batch, k, n, 6, generator=generator, dtype=dtype)
    return torch.nn.functional.normalize(objects + noise, dim=-1)


def weights(k, n):
    """Weights of many sizes, some of them zero."""
    generator = torch.Generator().manual_seed(k)
    raw = torch.rand(k, n, generator=generator, dtype=torch.float64) + 0.1
    raw[1, 3] = raw[0, 0] = 0.0
    return list(raw / raw.sum(1, keepdim=True))


def cases():
    """Yield (solver, k, epsilon, weighted, batch)."""
    for name in EXACT:
        epsilon = 0.02 if name == "newton" else 0.15
        for k in SIZES:
            yield name, k, epsilon, False, ()
        yield name, 3, epsilon, True, ()
        yield name, 4, epsilon, False, (2,)
    # Simulate a large problem: the Newton system is not exchanged, and there are many slabs.
    yield "large", 3, 0.02, True, ()
    yield "large", 4, 0.05, False, (2,)
    for name in ("products", "tuples", "listed"):
        yield name, 3, 0.15, False, ()
    yield "tuples", 4, 0.15, True, ()
    yield "products", 5, 0.15, False, (2,)
    yield "product", 3, 0.1, False, ()
    yield "csd", 3, 0.1, False, ()


def solved(case, wrap):
    """Value, a pair marginal, the gradient, steps and error of one case."""
    name, k, epsilon, weighted, batch = case
    n = SIZES[k]
    views = points(k, n, batch=batch).requires_grad_()
    cost = m3g.CircularVariance()
    if name in ("product", "csd"):
        cost = m3g.MultilinearProduct() if name == "product" else m3g.CircularStd()
    solver = wrap(SOLVERS.get(name, m3g.Factored() if name == "large" else m3g.Dense()))
    given = weights(k, n) if weighted else None
    with ExitStack() as stack:
        for module, limit in LARGE if name == "large" else []:
            stack.enter_context(mock.patch.object(module, limit, 8))
        solution = m3g.solve(cost(views), epsilon=epsilon, solver=solver, weights=given, differentiable=True)
    (gradient,) = torch.autograd.grad(solution.value.sum(), views)
    return {
        "value": solution.value.detach(),
        "pair": solution.coupling_form.pair(0, k - 1),
        "gradient": gradient,
        "steps": solution.num_steps,
        "error": solution.error,
    }


def compute():
    return {str(case): solved(case, lambda solver: Sharded(solver, min_flops=0)) for case in cases()}
