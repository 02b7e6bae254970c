"""Losses whose solves several processes share: value, gradient, and the failure of one process."""

from __future__ import annotations

from unittest import mock

import torch
import torch.distributed as dist

import m3g
from m3g.solvers.factored.contraction import CompleteContraction
from solvers import sharing

N = {2: 8, 3: 8, 4: 6, 5: 4}


def batch(k, world, masked, with_teacher):
    """Views of the full batch (k, world n, d), a mask and a teacher."""
    n = world * N[k] // 2
    views, teacher = sharing.points(k, n), sharing.points(k, n, seed=1)
    mask = torch.rand(k, n, generator=torch.Generator().manual_seed(2)) < 0.7
    mask[:2] = True
    return views, mask if masked else None, teacher if with_teacher else None


def cases():
    """Yield (solver, k, masked, with_teacher)."""
    for k in N:
        yield "factored", k, k % 2 == 0, k > 3
    yield "factored", 3, True, True
    yield "dense", 3, True, True
    yield "auto", 4, True, False


def loss_and_gradient(loss, views, mask, teacher):
    views = views.clone().requires_grad_()
    value = loss(views, mask=mask, **({} if teacher is None else {"teacher": teacher}))
    value.backward()
    return value.detach(), views.grad


def local_rows(tensor):
    n = tensor.shape[1] // dist.get_world_size()
    return tensor[:, dist.get_rank() * n : (dist.get_rank() + 1) * n]


def compute():
    results = {}
    world = dist.get_world_size()
    for case in cases():
        solver, k, masked, with_teacher = case
        loss = m3g.M3GLoss(0.1, solver=solver, gather=True, shard=True)
        local = [None if each is None else local_rows(each) for each in batch(k, world, masked, with_teacher)]
        value, gradient = loss_and_gradient(loss, *local)
        results[str(case)] = value, gradient / world  # which DDP averages
    results["failures"] = dict(failures())
    views = local_rows(batch(3, world, False, False)[0])
    results["bfloat16"] = loss_and_gradient(m3g.M3GLoss(0.1, gather=True, gather_dtype="bfloat16"), views, None, None)
    return results


def failures():
    """Return the type of the error that this process raises if rank 1 fails."""
    views = local_rows(batch(3, dist.get_world_size(), False, False)[0])
    evaluate = CompleteContraction.evaluate

    def out_of_memory(*arguments):
        raise torch.OutOfMemoryError("out of memory")

    def not_a_number(*arguments):
        sums = evaluate(*arguments)
        return sums._replace(others=sums.others * torch.nan)

    for name, broken in {"out of memory": out_of_memory, "nan": not_a_number}.items():
        broken = broken if dist.get_rank() == 1 else evaluate
        loss = m3g.M3GLoss(0.01, solver=m3g.Factored(), gather=True, shard=True)
        with mock.patch.object(CompleteContraction, "evaluate", broken):
            yield name, raised(loss, views)
        yield f"after {name}", raised(loss, views)
    wrong = views * torch.nan if dist.get_rank() == 1 else views
    yield "nan in the views", raised(m3g.M3GLoss(0.1, gather=True, shard=True), wrong)


def raised(loss, views):
    try:
        return loss(views)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
