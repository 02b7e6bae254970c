"""How much memory a solver may take, and one piece of it for all that is large in a solve."""

from __future__ import annotations

import functools
import math
import os

import torch
from torch import Tensor

# What compiled code counts with: it keeps all its tables.
COMPILED_LIMIT = 2**40
# The most bytes that glibc takes from what was freed before, less its own header.
MOST_KEPT = 2**25 - 2**12


def memory_limit(device: torch.device) -> int:
    """Half of the memory there is: of the device, or of the machine."""
    if torch.compiler.is_compiling():  # a graph may run elsewhere, so its form must not depend on this machine
        return COMPILED_LIMIT
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] // 2
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):  # not told on this system
        return 4 * 2**30


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep blocks of some megabytes that are freed, once per process.

    glibc gives a freed block back to the system unless a larger one, of up to 32 MiB, was freed before; then every pass
    that makes a new tensor waits for new pages, for a third of its time. No page of this block is ever touched.
    """
    torch.empty(MOST_KEPT, dtype=torch.uint8)


class Workspace:
    """Memory of one solve in one piece, of which tensors are taken one after the other.

    Tensors of some megabytes that are allocated one by one are given back to the system when they are freed, and the
    next solve waits for new pages, on a CPU for a good part of its time. One piece of up to 32 MiB is kept by the C
    library (glibc gives back what is more than twice the largest of them). Past that each tensor has its own memory.

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
