"""Processes of a torchrun launch: rank of this process, and the end of its process group."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import traceback

PATIENCE = 10.0  # seconds to wait for the end of a process group after an error


def started() -> bool:
    """Return whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Return whether this process is the one that writes and prints."""
    return not started() or int(os.environ["RANK"]) == 0


def prepare_group() -> None:
    """Import `torch.distributed.nn.functional` before there is a process group.

    Its default arguments are bound to the group that exists when it is imported. `DistributedDataParallel` imports it,
    so otherwise the group and its threads would outlive `end_group`.
    """
    import torch.distributed.nn.functional  # noqa: F401


def end_group() -> None:
    """Wait for all processes, then destroy the process group and, without `fully_shard`, join its threads.

    A thread of the group that is alive while Python shuts down may require the interpreter lock to release a tensor,
    which aborts the process. Call this after the trainer is deleted, because nothing may refer to the group any more.
    """
    # After `fully_shard` the threads stay until the process ends. DTensor caches the mesh, and with it the group, in
    # sharding propagation (Python and C++), redistribution plans and mesh topologies, and torch has no public call to
    # clear these caches. The threads are harmless, because `m3g.cli.launch.leave` skips the shutdown of Python.
    import torch.distributed as dist

    if started() and dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
        gc.collect()  # the trainer is part of reference cycles that hold the group


def abandon_group(error: BaseException) -> None:
    """Destroy the process group after an error, without waiting for processes that may have exited.

    The frames of the error refer to the trainer and thus to the group, so their variables are released. If a thread of
    the group still waits for another process, this process continues after `PATIENCE` seconds.
    """
    import torch.distributed as dist

    if not (started() and dist.is_initialized()):
        return
    current: BaseException | None = error
    while current is not None:
        traceback.clear_frames(current.__traceback__)
        current = current.__cause__ or current.__context__
    thread = threading.Thread(target=_destroy, daemon=True)
    thread.start()
    thread.join(PATIENCE)


def _destroy() -> None:
    import torch.distributed as dist

    with contextlib.suppress(RuntimeError, ValueError):  # the connection is lost, or the group is gone
        dist.destroy_process_group()
    gc.collect()
