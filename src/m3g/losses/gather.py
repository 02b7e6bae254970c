"""The one place where a loss meets several processes.

With `gather=True` every process sees the points of all: n becomes world × n, rows in the order of the ranks.
All processes then compute the same loss L of the full batch. `DistributedDataParallel` averages gradients
over processes, and a process only reaches the parameters through its own rows, so the average holds
(1/world) dL/dθ; the backward of the gather therefore multiplies by the number of processes. The result is the
loss and the gradient of one process with the full batch, and the backward pass communicates nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _GatherRows(torch.autograd.Function):
    """Rows (dimension -2) of all processes, one after the other."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        everyone = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, rows)
        ctx.n = rows.shape[-2]
        return torch.cat(everyone, dim=-2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return dist.get_world_size() * grad.narrow(-2, dist.get_rank() * ctx.n, ctx.n)


def distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def gather_views(
    views: Tensor, mask: Tensor | None = None, teacher: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Views (..., k, n, d), mask (..., k, n) and teacher of all processes; unchanged if there is only one.

    A process without a mask joins processes that have one as fully present. Everything else must agree, or
    every process raises the same `ValueError`: nobody is left waiting.
    """
    if not distributed():
        return views, mask, teacher
    masked = _agree(views, mask, teacher)
    if masked:
        present = torch.ones(views.shape[:-1], dtype=torch.bool, device=views.device) if mask is None else mask
        mask = _GatherRows.apply(present.expand(views.shape[:-1]).to(torch.uint8).unsqueeze(-1)).squeeze(-1).bool()  # type: ignore[no-untyped-call]
    if teacher is not None:
        teacher = _GatherRows.apply(teacher)  # type: ignore[no-untyped-call]
    return _GatherRows.apply(views), mask, teacher  # type: ignore[no-untyped-call]


def _agree(views: Tensor, mask: Tensor | None, teacher: Tensor | None) -> bool:
    """Whether any process has a mask; raise on all of them if what they bring cannot be put together."""
    # Padded to one length, for messages of different lengths would not meet.
    shape = [*views.shape, *[0] * (8 - views.ndim)]
    mine = torch.tensor(
        [mask is not None, teacher is not None, views.dtype == torch.float64, *shape], device=views.device
    )
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    ranks = [each.tolist() for each in everyone]
    shapes = [tuple(size for size in rank[3:] if size) for rank in ranks]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"views must be one shape on all processes with gather=True, got {shapes} by rank "
            "(drop the last, smaller batch)."
        )
    if len({tuple(rank[1:3]) for rank in ranks}) > 1:
        raise ValueError(
            "views must be one dtype, and a teacher on all processes or on none, with gather=True, "
            f"got float64 = {[bool(rank[2]) for rank in ranks]}, "
            f"teacher = {[bool(rank[1]) for rank in ranks]} by rank."
        )
    return any(rank[0] for rank in ranks)


def shared_generator(generator: torch.Generator | None, *, device: torch.device) -> torch.Generator | None:
    """A generator on the CPU whose draws are those of rank 0 from `generator` (None: torch's own) on all processes.

    Rank 0 draws from its own, so that all processes draw what one process with the full batch draws.
    """
    if not distributed():
        return generator
    state = (torch.default_generator if generator is None else generator).get_state().to(device)
    dist.broadcast(state, src=0)
    return generator if dist.get_rank() == 0 else torch.Generator().set_state(state.cpu())


def shared_seed(generator: torch.Generator | None, *, device: torch.device) -> int:
    """A random seed drawn from `generator` (None: torch's own), that of rank 0 on all processes."""
    seed = torch.randint(2**62, (), generator=generator, device=generator.device if generator else None)
    if distributed():
        seed = seed.to(device)
        dist.broadcast(seed, src=0)
    return int(seed)
