"""One of several processes that share solves; results are saved for the tests to compare.

python sharing.py WORLD RANK MEETING_FILE RESULT_FILE
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported before the group exists: its default arguments would keep it alive

import m3g
from m3g.solvers.factored import contraction
from m3g.solvers.factored import sharded as contracted
from m3g.solvers.sharded import Sharded
from m3g.solvers.shared import newton
from threads import group_threads

TIMEOUT = timedelta(seconds=100)
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
    found = torch.rand(k, n, generator=generator, dtype=torch.float64) + 0.1
    found[1, 3] = found[0, 0] = 0.0
    return list(found / found.sum(1, keepdim=True))


def cases():
    """(solver, k, epsilon, weighted, batch)"""
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


def launch(script, world, folder, *arguments, timeout=150):
    """Run a script in several processes; return the results they saved."""
    results = [folder / f"rank{rank}.pt" for rank in range(world)]
    processes = [
        subprocess.Popen(
            [sys.executable, script, str(world), str(rank), str(folder / "meeting"), str(result), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, result in enumerate(results)
    ]
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * world, "\n".join(errors)
    return [torch.load(result) for result in results]


def join(world, rank, meeting, result, compute):
    """Save what `compute` returns in a process group."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=int(rank), world_size=int(world), timeout=TIMEOUT
    )
    try:
        torch.save(compute(), result)
        dist.barrier()
    finally:
        dist.destroy_process_group()
    assert not group_threads()


if __name__ == "__main__":
    join(*sys.argv[1:], compute)
