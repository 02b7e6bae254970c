"""Run a command in several processes on this machine, like torchrun."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from m3g._interrupts import (
    INTERRUPTED,
    STARTED_BY,
    children_without_interrupts,
    started_by_command,
)

if TYPE_CHECKING:
    from torch.distributed import TCPStore

USER_ERROR = 2  # exit code
MESSAGES = "M3G_MESSAGES"  # environment variable: the file for the last messages of the processes


def run_in_processes(count: int, arguments: list[str]) -> int:
    """Run `m3g` with these arguments in `count` processes and return the exit code.

    If one process fails, all are stopped. Its error is printed, or a `ValueError` is raised if a signal killed it.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    check_process_count(count)
    logging.disable(logging.ERROR)  # silence torchrun's reports of failed processes
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # silence warnings about unused parameters
    os.environ.setdefault("TORCHELASTIC_SIGNALS_TO_HANDLE", ",".join(_signals()))
    group = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        messages = Path(folder) / "messages"
        os.environ.update({STARTED_BY: str(os.getpid()), MESSAGES: str(messages)})
        try:
            with children_without_interrupts():
                elastic_launch(group, sys.executable)("-m", "m3g", *arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode > 0:
                print(*_lines(messages)[:1], sep="", end="", file=sys.stderr, flush=True)
                return failure.exitcode
            raise ValueError(
                f"process {rank} was killed by signal {-failure.exitcode}, and the others were stopped: free memory if "
                "the system ran out of it, and continue with m3g train --resume."
            ) from error
        except SignalException as error:
            default = "m3g: error: interrupted\n"
            lines = [line for line in _lines(messages) if line.startswith(default.strip())]
            print(*[*lines, default][:1], sep="", end="", file=sys.stderr, flush=True)
            return 128 + error.sigval
        finally:
            logging.disable(logging.NOTSET)
            del os.environ[STARTED_BY], os.environ[MESSAGES]
    return 0


def _signals() -> list[str]:
    """Return the signals that stop the processes, without those that are already ignored, for example by nohup."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    return [n for n in names if hasattr(signal, n) and signal.getsignal(getattr(signal, n)) is not signal.SIG_IGN]


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []


def print_last(line: str) -> None:
    """Print the last error line of a command, or pass it to the command that started this process."""
    if not started_by_command():
        print(line, file=sys.stderr, flush=True)
        return
    with contextlib.suppress(OSError), open(os.environ[MESSAGES], "a", encoding="utf-8") as file:
        file.write(line + "\n")


def check_process_count(count: int) -> None:
    """Raise if there are more processes than GPUs and more than CPU cores, because they would compete for them."""
    import torch

    gpus, cores = torch.cuda.device_count(), os.cpu_count() or 1
    if count > max(gpus, cores):
        raise ValueError(f"loop.devices must be at most {max(gpus, cores)} on this machine, got {count}: use fewer.")


def agent_store(seconds: float) -> TCPStore | None:
    """Return the store that torchrun provides for its processes, or None."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=seconds))


def store_key(name: str) -> str:
    """Return a key of torchrun's store that differs between restarts."""
    return f"m3g/{name}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def share_with_others(name: str, value: str) -> None:
    """Share a value with the other processes of the torchrun launch, which read it by `from_first`."""
    store = agent_store(60)
    if store is not None:
        store.set(store_key(name), value)


def from_first(name: str, default: str) -> str:
    """Return the value that the first process shared, or the default if torchrun provides no store."""
    store = agent_store(600)
    return default if store is None else store.get(store_key(name)).decode()


def end_with_parent() -> None:
    """Exit a process started by `run_in_processes` within a second after its parent ends or is killed."""

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(USER_ERROR)

    if started_by_command():
        threading.Thread(target=watch, args=[int(os.environ[STARTED_BY])], daemon=True).start()


def leave(code: int) -> int:
    """Return the exit code or, in a process group or after Ctrl-C, exit immediately.

    An immediate exit skips the shutdown of the Python interpreter. During shutdown, a thread of the process group that
    requires the interpreter lock would abort the process, and after an error the destructor of the group would wait for
    exited processes. After Ctrl-C, shutdown may wait for a lock that the interrupted function did not release.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ or code == INTERRUPTED:
        if code == 0:
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
