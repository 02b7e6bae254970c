"""Ctrl-C: one line, at any moment and for any number of processes.

The processes of a run are started with SIGINT blocked, and accept it once they can end without a word: the process that
started them reports for all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

INTERRUPTED = 130
STARTED_BY = "M3G_STARTED_BY"  # the process id of the command that has started this one


def started_by_command() -> bool:
    """Whether this is one of the processes that `m3g train --loop.devices` starts."""
    return STARTED_BY in os.environ


def accept_interrupts() -> None:
    """Accept SIGINT if the process was started without; one that has come since then is raised here."""
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Let SIGINT end the process at once, while it imports libraries: there is nothing yet to put in order.

    A `KeyboardInterrupt` among imports may come out as another error, or as several lines about what was ignored.
    """

    def end(*_: Any) -> None:
        if not started_by_command():
            with contextlib.suppress(OSError):
                os.write(2, b"m3g: error: interrupted\n")
        os._exit(INTERRUPTED)

    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield
        return
    sys.stdout.flush()
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextlib.contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Start processes with SIGINT blocked; a second thread takes it for this process, whose handlers run as usual."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()  # before the signal is blocked: threads inherit that
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        over.set()
