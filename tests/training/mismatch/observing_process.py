"""One of two processes that evaluate half of every batch: python observing_process.py RANK MEETING_FILE RESULT_FILE."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from m3g.training.mismatch.reliability import Mismatch
from threads import group_threads

K, N, D, STEPS = 3, 80, 16, 4


def batch(step):
    """Rows in a different order at every step; view 1 of the first five belongs to other objects."""
    random = torch.Generator().manual_seed(0)
    views = torch.randn(1, N, D, generator=random) + 0.3 * torch.randn(K, N, D, generator=random)
    views[1, :5] = views[1, :5].roll(1, 0)
    rows = torch.randperm(N, generator=torch.Generator().manual_seed(step))
    return views[:, rows], rows


def observed(part):
    watch = Mismatch(K, N)
    for step in range(STEPS):
        views, rows = batch(step)
        watch.observe(views[:, part], rows[part])
    return watch.log_odds()


if __name__ == "__main__":
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
    try:
        torch.save(observed(slice(rank, None, 2)), f"{sys.argv[3]}{rank}")
        dist.barrier()
    finally:
        dist.destroy_process_group()
    assert not group_threads()
