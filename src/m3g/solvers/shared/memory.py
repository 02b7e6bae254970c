"""Memory limit of solvers, and a workspace for the large tensors of a solve."""

from __future__ import annotations

import functools
import math
import os

import torch
from torch import Tensor

# Assumed by compiled code, which keeps all its tables.
COMPILED_LIMIT = 2**40
# Largest block that glibc reuses after it was freed, minus its header.
MOST_KEPT = 2**25 - 2**12


def memory_limit(device: torch.device) -> int:
    """Return half of the memory of the device or machine."""
    if torch.compiler.is_compiling():  # a graph may run elsewhere, so its form must not depend on this machine
        return COMPILED_LIMIT
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] // 2
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):  # not available on this system
        return 4 * 2**30


@functools.cache
def keep_freed_memory() -> None:
    """Make the C library keep freed blocks of some megabytes, once per process.

    glibc returns a freed block to the system unless a larger one, of up to 32 MiB, was freed before. Without such a
    block, every pass that allocates a tensor spends a third of its time on new pages. No page of the block is touched.
    """
    torch.empty(MOST_KEPT, dtype=torch.uint8)


class Workspace:
    """Memory of one solve in one block, from which tensors are allocated in sequence.

    Tensors of some megabytes that are allocated separately are returned to the system when freed. The next solve then
    waits for new pages, which takes a considerable part of its time on a CPU. The C library keeps one freed block of up
    to 32 MiB. If more memory is needed, each tensor is allocated separately.

    Example:
        >>> space = Workspace(torch.zeros(2), 10)
        >>> space.take(2, 3).shape, space.take(4).shape
        (torch.Size([2, 3]), torch.Size([4]))
    """

    def __init__(self, like: Tensor, numbers: int):
        self.free = like.new_empty(numbers if numbers * like.element_size() <= MOST_KEPT else 0)

    def take(self, *shape: int) -> Tensor:
        size = math.prod(shape)
        if size > self.free.numel():
            return self.free.new_empty(shape)
        taken, self.free = self.free[:size], self.free[size:]
        return taken.view(shape)
