"""How much memory a solver may take."""

from __future__ import annotations

import os

import torch

# What compiled code counts with: it keeps all its tables.
COMPILED_LIMIT = 2**40


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
