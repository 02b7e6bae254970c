"""The reliability of entries; `compute` evaluates half of every batch in each of two processes."""

from __future__ import annotations

import torch
import torch.distributed as dist

from m3g.training.mismatch.reliability import Mismatch

K, N, D, STEPS = 3, 80, 16, 4


def batch(step):
    """Rows in a different order at every step; view 1 of the first five belongs to other objects."""
    random = torch.Generator().manual_seed(0)
    views = torch.randn(1, N, D, generator=random) + 0.3 * torch.randn(K, N, D, generator=random)
    views[1, :5] = views[1, :5].roll(1, 0)
    rows = torch.randperm(N, generator=torch.Generator().manual_seed(step))
    return views[:, rows], rows


def observed(part):
    mismatch = Mismatch(K, N)
    for step in range(STEPS):
        views, rows = batch(step)
        mismatch.observe(views[:, part], rows[part])
    return mismatch.log_odds()


def compute():
    return observed(slice(dist.get_rank(), None, 2))
