"""Gathering of views over processes.

With `gather=True`, each of p processes receives the points of all processes: n becomes p n, with rows in rank order.
All processes then compute the same loss L of the full batch. In the backward pass, each process computes the part of
the gradient dL/dθ that its own rows contribute. `DistributedDataParallel` averages these parts over processes, which
gives (1/p) dL/dθ. The backward pass of the gather therefore multiplies by p. Loss and gradient equal those of one
process with the full batch, and the backward pass of the gather requires no communication.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from m3g.solvers.shared.processes import gather_rows


class _GatherRows(torch.autograd.Function):
    """Concatenation of the rows (dimension -2) of all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.n = rows.shape[-2]
        return gather_rows(rows, rows.ndim - 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return dist.get_world_size() * grad.narrow(-2, dist.get_rank() * ctx.n, ctx.n)


def distributed() -> bool:
    """Return whether torch.distributed is initialised with more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def gather_views(
    views: Tensor, mask: Tensor | None = None, teacher: Tensor | None = None, *, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gather views (..., k, n, d), mask (..., k, n) and teacher (..., k, n, d) from all processes.

    Views and teacher are float32 or float64. They are sent in `dtype`, if given, and returned in their original dtype.
    If only some processes have a mask, the others use a mask of ones. Shapes and dtypes must agree, and a teacher must
    be given on all processes or on none; otherwise every process raises the same `ValueError`, so that no rank
    deadlocks.

    Returns:
        Views, mask and teacher with p n points for p processes, in rank order. In a single process, the arguments are
        returned unchanged.
    """
    if not distributed():
        return views, mask, teacher
    if _any_masked(views, mask, teacher):
        present = torch.ones(views.shape[:-1], dtype=torch.bool, device=views.device) if mask is None else mask
        mask = _GatherRows.apply(present.expand(views.shape[:-1]).to(torch.uint8).unsqueeze(-1)).squeeze(-1).bool()  # type: ignore[no-untyped-call]
    if teacher is not None:
        teacher = _gathered(teacher, dtype)
    return _gathered(views, dtype), mask, teacher


def _gathered(views: Tensor, dtype: torch.dtype | None) -> Tensor:
    gathered: Tensor = _GatherRows.apply(views if dtype is None else views.to(dtype))  # type: ignore[no-untyped-call]
    return gathered.to(views.dtype)


def _any_masked(views: Tensor, mask: Tensor | None, teacher: Tensor | None) -> bool:
    """Return whether any process has a mask; raise on all processes if their inputs are incompatible."""
    # Padded to 8 sizes, because all_gather requires tensors of one length.
    padded_shape = [*views.shape, *[0] * (8 - views.ndim)]
    local = torch.tensor(
        [mask is not None, teacher is not None, views.dtype == torch.float64, *padded_shape], device=views.device
    )
    ranks = gather_rows(local.unsqueeze(0), 0).tolist()
    shapes = [tuple(size for size in rank[3:] if size) for rank in ranks]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"views must have one shape on all processes with gather=True, got {shapes} by rank "
            "(drop the last, smaller batch)."
        )
    if len({tuple(rank[1:3]) for rank in ranks}) > 1:
        raise ValueError(
            "views must have one dtype, and a teacher must be given on all processes or on none, with gather=True, "
            f"got float64 = {[bool(rank[2]) for rank in ranks]}, "
            f"teacher = {[bool(rank[1]) for rank in ranks]} by rank."
        )
    return any(rank[0] for rank in ranks)


def shared_generator(generator: torch.Generator | None, *, device: torch.device) -> torch.Generator | None:
    """Return a generator with which all processes draw the same numbers as one process with the full batch.

    Rank 0 uses `generator` itself (None: torch's default), the others a new CPU generator with its state.
    """
    if not distributed():
        return generator
    state = (torch.default_generator if generator is None else generator).get_state().to(device)
    dist.broadcast(state, src=0)
    return generator if dist.get_rank() == 0 else torch.Generator().set_state(state.cpu())


def shared_seed(generator: torch.Generator | None, *, device: torch.device) -> int:
    """Draw a seed from `generator` (None: torch's default) on rank 0 and broadcast it."""
    seed = torch.randint(2**62, (), generator=generator, device=generator.device if generator else None)
    if distributed():
        seed = seed.to(device)
        dist.broadcast(seed, src=0)
    return int(seed)
