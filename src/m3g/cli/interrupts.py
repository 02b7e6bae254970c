"""Handling of Ctrl-C: one line of output, at any time and for any number of processes.

Processes of a run are started with SIGINT blocked and accept it once they can exit silently; the process that started
them reports the interruption for all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

INTERRUPTED = 130  # exit code after SIGINT
STARTED_BY = "M3G_STARTED_BY"  # process id of the command that started this process


def started_by_command() -> bool:
    """Return whether this process was started by `m3g train --loop.devices`."""
    return STARTED_BY in os.environ


def accept_interrupts() -> None:
    """Unblock SIGINT if the process was started with it blocked; a pending SIGINT is then delivered."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextlib.contextmanager
def exiting_on_interrupt() -> Iterator[None]:
    """Exit immediately on SIGINT during imports, when there is nothing to clean up.

    A `KeyboardInterrupt` during imports may surface as another error, or as several lines about ignored exceptions.
    """

    def end(*_: object) -> None:
        if not started_by_command():
            with contextlib.suppress(OSError):
                os.write(2, b"m3g: error: interrupted\n")
        os._exit(INTERRUPTED)

    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is not signal.default_int_handler:
        yield
        return
    sys.stdout.flush()
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Block SIGINT in child processes; a second thread receives it for this process, so that its handlers still run."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    finished = threading.Event()
    threading.Thread(target=finished.wait, daemon=True).start()  # before blocking: threads inherit the mask
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        finished.set()
