"""Every loss under DistributedDataParallel; `compute` runs in each of two processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import m3g
from m3g import losses
from m3g.nets import embed_in_chunks

WORLD, K, N, D_IN, D = 2, 3, 5, 7, 6


class Model(nn.Module):
    """An encoder per view and the loss, so that DDP also synchronises a learned temperature."""

    def __init__(self, loss):
        super().__init__()
        self.encoders = nn.ModuleList(nn.Linear(D_IN, D) for _ in range(K))
        self.loss = loss

    def forward(self, inputs, mask, teacher):
        views = torch.stack([encoder(x) for encoder, x in zip(self.encoders, inputs)])
        return self.loss(views, mask=mask, **({} if teacher is None else {"teacher": teacher}))


def model(name, options, seed):
    if "generator" in losses.options(name):
        options = {**options, "generator": torch.Generator().manual_seed(seed)}
    torch.manual_seed(0)
    return Model(losses.build(name, **options)).double()


def data(masked, with_teacher):
    """The full batch: inputs (k, world n, d_in), a mask, a teacher's views."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(K, WORLD * N, D_IN, generator=generator, dtype=torch.float64)
    teacher = torch.randn(K, WORLD * N, D, generator=generator, dtype=torch.float64)
    mask = torch.rand(K, WORLD * N, generator=generator) < 0.6
    mask[:, :3] = mask[:, N : N + 3] = True
    return inputs, mask if masked else None, teacher if with_teacher else None


def share(batch, rank):
    """The rows of one process."""
    rows = slice(rank * N, (rank + 1) * N)
    return [None if each is None else each[:, rows] for each in batch]


def cases():
    """Yield (name, options, masked, with_teacher) of all comparisons."""
    for name in losses.available():
        yield name, {}, False, False
        yield name, {}, True, False
        if losses.build(name).takes_teacher:
            yield name, {}, True, True
    yield "symile", {"negatives": "n_squared"}, True, False
    yield "kl", {"of": "pairs"}, True, True
    yield "infonce-ave", {"symmetric": True}, True, True
    yield "infonce-ave", {"learn_temperature": True}, False, True


def loss_and_gradients(module, batch):
    value = module(*batch)
    value.backward()
    return value.detach(), [parameter.grad for parameter in module.parameters()]


def refusals(rank):
    """Return the error of each process for incompatible inputs."""
    loss, views = losses.build("infonce-pwe", gather=True), torch.randn(K, N, D)
    uneven = [{"views": views[:, : N - rank]}, {"views": views, "teacher": views if rank else None}]
    uneven.append({"views": views.double() if rank else views})
    for arguments in uneven:
        try:
            loss(**arguments)
        except ValueError as error:
            yield str(error)
        else:
            yield "no error"


def random_solvers(rank):
    """The gap by random solvers, which would differ between processes without a shared seed."""
    inputs = share(data(masked=False, with_teacher=False), rank)
    for solver in (m3g.Sampled(rank=4), m3g.Auto(max_flops=1.0, few_tuples=1)):
        module = model("m3g", {"gather": True, "solver": solver}, 0)
        torch.manual_seed(rank)
        yield loss_and_gradients(module, inputs)[0]
        assert module.loss.last.solver == "sampled"


def mask_on_one_process(rank):
    """One process with a mask and one without, each with half of the batch."""
    inputs, mask, _ = data(masked=True, with_teacher=False)
    mask[:, :N] = True
    inputs, mask, _ = share((inputs, mask, None), rank)
    return loss_and_gradients(
        DistributedDataParallel(model("polyview", {"gather": True}, 0)),
        (inputs, mask if rank else None, None),
    )


class Chunked(Model):
    """The same model, embedding two rows at a time."""

    def forward(self, inputs, mask, teacher):
        views = [embed_in_chunks(encoder, x, chunk_size=2) for encoder, x in zip(self.encoders, inputs)]
        return self.loss(views, mask=mask, **({} if teacher is None else {"teacher": teacher}))


def in_chunks(rank):
    """Loss and gradients of every case, DDP around the model or each encoder, and reductions per parameter."""
    for name, options, masked, with_teacher in cases():
        for wrapped in ("model", "encoders"):
            module = model(name, {**options, "gather": True}, seed=rank)
            module.__class__ = Chunked
            parts = [module] if wrapped == "model" else list(module.encoders)
            if wrapped == "encoders" and any(True for _ in module.loss.parameters()):
                continue  # nothing would average the gradient of the loss's own parameters
            reduced = []

            def count(_, bucket, reduced=reduced):
                reduced.extend(bucket.parameters())
                return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

            replicas = [DistributedDataParallel(part) for part in parts]
            for replica in replicas:
                replica.register_comm_hook(None, count)
            if wrapped == "encoders":
                module.encoders = nn.ModuleList(replicas)
            value_and_gradients = loss_and_gradients(
                replicas[0] if wrapped == "model" else module, share(data(masked, with_teacher), rank)
            )
            yield (
                (name, str(options), masked, with_teacher, wrapped),
                (*value_and_gradients, len(reduced) / len(value_and_gradients[1])),
            )


def compute():
    """Everything that the test compares."""
    rank, results = dist.get_rank(), {}
    for name, options, masked, with_teacher in cases():
        for gather in (True, False):
            # Different seeds: with gather=True the processes must still agree on the shuffles.
            module = DistributedDataParallel(model(name, {**options, "gather": gather}, seed=rank))
            key = (name, str(options), masked, with_teacher, gather)
            results[key] = loss_and_gradients(module, share(data(masked, with_teacher), rank))
    results["refusals"] = list(refusals(rank))
    results["random solvers"] = list(random_solvers(rank))
    results["chunks"] = dict(in_chunks(rank))
    results["mask on one process"] = mask_on_one_process(rank)
    return results
