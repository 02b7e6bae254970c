"""Memory limit of solvers, and a workspace for the large tensors of a solve."""

from __future__ import annotations

import functools
import math
import os

import torch
from torch import Tensor

# Limit in compiled code, so large that all tables are stored.
COMPILED_LIMIT = 2**40
# Size of the largest block that glibc keeps for reuse after it was freed, minus its header.
MAX_REUSED_BYTES = 2**25 - 2**12
# Size of the smallest block that glibc returns to the system by default.
MIN_RETURNED_BYTES = 2**17


def memory_limit(device: torch.device) -> int:
    """Return half of the total memory of the device or machine, in bytes; 4 GiB if the total is unknown."""
    if torch.compiler.is_compiling():  # a graph must not depend on the memory of this machine
        return COMPILED_LIMIT
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] // 2
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):  # not available on this system
        return 4 * 2**30


def keep_freed_memory(size: int) -> None:
    """Make glibc keep freed blocks of up to 32 MiB for reuse, if a solve has tables of at least 128 KiB.

    `size` is the size of the tables in bytes. By default, glibc returns freed blocks of at least 128 KiB to the system,
    and every pass that allocates a tensor spends a third of its time on new memory pages. Smaller tables do not benefit
    from the setting. It is not changed for them, because glibc would also keep the freed batches of a training run,
    which fragments the memory.
    """
    if size >= MIN_RETURNED_BYTES:
        _raise_threshold()


@functools.cache
def _raise_threshold() -> None:
    """Allocate and free a block of nearly 32 MiB, without writing to it; once per process.

    After a block of up to 32 MiB has been freed, glibc keeps all smaller freed blocks.
    """
    torch.empty(MAX_REUSED_BYTES, dtype=torch.uint8)


class Workspace:
    """One block of memory from which the tensors of a solve are allocated in sequence.

    By default, glibc returns separately freed tensors of some megabytes to the system, and on a CPU the next solve
    spends a considerable part of its time on new memory pages. A single block of up to 32 MiB is kept for reuse. If
    more memory is required, each tensor is allocated separately.

    Args:
        like: a tensor with the dtype and device of the workspace.
        numbers: number of entries of all tensors.

    Example:
        >>> space = Workspace(torch.zeros(2), 10)
        >>> space.take(2, 3).shape, space.take(4).shape
        (torch.Size([2, 3]), torch.Size([4]))
    """

    def __init__(self, like: Tensor, numbers: int):
        self.free = like.new_empty(numbers if numbers * like.element_size() <= MAX_REUSED_BYTES else 0)

    def take(self, *shape: int) -> Tensor:
        """Return the next tensor, with undefined entries."""
        size = math.prod(shape)
        if size > self.free.numel():
            return self.free.new_empty(shape)
        taken, self.free = self.free[:size], self.free[size:]
        return taken.view(shape)
