"""A command in several processes on this machine, started as torchrun starts them."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import uuid
from datetime import timedelta
from typing import Any

USER_ERROR = 2
STARTED_BY = "M3G_STARTED_BY"


def run_in_processes(count: int, arguments: list[str]) -> int:
    """Run `m3g` with these arguments in `count` processes; when one fails, all end, and it has said why itself."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    refuse_more_than_there_are(count)
    logging.disable(logging.ERROR)  # what torchrun says about processes that fail
    os.environ[STARTED_BY] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    group = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(group, sys.executable)("-m", "m3g", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            return failure.exitcode
        raise ValueError(
            f"process {rank} was ended by signal {-failure.exitcode}, and with it the others: free some memory if the "
            "system ran out of it, and continue with m3g train --resume."
        ) from error
    except SignalException as error:  # the processes have had the signal too, and say how to go on
        return 128 + error.sigval
    finally:
        logging.disable(logging.NOTSET)
    return 0


def refuse_more_than_there_are(count: int) -> None:
    """Refuse more processes than the machine has GPUs and CPU cores: they would wait for each other."""
    import torch

    gpus, cores = torch.cuda.device_count(), os.cpu_count() or 1
    if count > max(gpus, cores):
        raise ValueError(f"loop.devices must be at most {max(gpus, cores)} on this machine, got {count}: use fewer.")


def agent_store(seconds: float) -> Any:
    """The store that torchrun keeps for its processes; None without one."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=seconds))


def store_key(name: str) -> str:
    return f"m3g/{name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def tell_others(name: str, value: str) -> None:
    """Give a value to the other processes of torchrun, which call `from_first`."""
    store = agent_store(60)
    if store is not None:
        store.set(store_key(name), value)


def from_first(name: str, default: str) -> str:
    """What the first process gave to `tell_others`; the default where torchrun keeps no store."""
    store = agent_store(600)
    return default if store is None else store.get(store_key(name)).decode()


def end_with_parent() -> None:
    """Let a process that `run_in_processes` started end when the one that started it is gone, even by kill -9."""

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(USER_ERROR)

    if STARTED_BY in os.environ:
        threading.Thread(target=watch, args=[int(os.environ[STARTED_BY])], daemon=True).start()


def leave(code: int) -> int:
    """Return the exit code; a process of several ends here.

    Python's own shutdown is skipped there. A thread of the process group that needs Python's lock while Python shuts
    down aborts the process, and after an error the destructor of the group would wait for processes that are gone.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        if code == 0:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
