"""Which of the processes of a run this is; torchrun says so in the environment."""

from __future__ import annotations

import gc
import os


def started() -> bool:
    """Whether torchrun has started the processes already."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not started() or int(os.environ["RANK"]) == 0


def prepare_group() -> None:
    """Import what must be imported before there is a process group.

    The default arguments of `torch.distributed.nn.functional` are bound to the group that exists when it is imported.
    `DistributedDataParallel` imports it, so the group and its threads would outlive `end_group`.
    """
    import torch.distributed.nn.functional  # noqa: F401


def end_group() -> None:
    """Wait for all processes, then destroy the process group and join its threads.

    A thread of the group that is alive while Python shuts down may need Python's lock to release a tensor, which
    aborts the process. Nothing may refer to the group any more: call it after the trainer is gone.
    """
    import torch.distributed as dist

    if started() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
        gc.collect()  # the trainer is part of reference cycles that hold the group
