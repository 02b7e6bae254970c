"""Handling of Ctrl-C: one line of output, at any time and for any number of processes.

The child processes of a run are started with SIGINT blocked, and unblock it once they can exit silently. The process
that started them reports the interruption for all of them. If SIGINT is ignored from the start (`nohup`, `m3g ... &` in
a script), it stays ignored.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # exit code after SIGINT
STARTED_BY = "M3G_STARTED_BY"  # process id of the command that started this process


def started_by_command() -> bool:
    """Return whether this process was started by `m3g train --loop.devices`."""
    return STARTED_BY in os.environ


class _Handler:
    """Handler of SIGINT that ends the process or, within `raising_interrupts`, raises `KeyboardInterrupt`.

    During an import, a `KeyboardInterrupt` may be discarded by a callback or a compiled module, surface as another
    error, or change the exit code. It is therefore raised after the import, unless a second SIGINT ends the process
    (not under torchrun). During the imports at the start of a command, the first SIGINT ends the process.
    """

    def __init__(self) -> None:
        self.exits = True  # whether to exit immediately: before a command begins, there is nothing to clean up
        self._received = self._repeated = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        second = self._received and not self._repeated
        self._received, self._repeated = True, False
        if second and "RANK" in os.environ:
            return  # torchrun forwards the SIGINT that Ctrl-C has already sent to this process
        importer = _importer(frame)
        if self.exits or (importer is not None and (second or _is_command(importer))):
            self._exit()
        if importer is None:
            raise KeyboardInterrupt
        self.repeat()

    def repeat(self) -> None:
        """Call the handler again after 10 ms; without `threading`, whose locks the main thread may hold."""

        def interrupt() -> None:
            time.sleep(0.01)
            self._repeated = True
            if sys.platform == "win32":  # on Windows, os.kill would end the process
                _thread.interrupt_main()
            else:  # also interrupts a system call of the main thread
                os.kill(os.getpid(), signal.SIGINT)

        _thread.start_new_thread(interrupt, ())

    def _exit(self) -> None:
        if not started_by_command() and os.environ.get("RANK", "0") == "0":
            with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: the signal interrupted a write
                sys.stdout.flush()
            with contextlib.suppress(OSError):
                os.write(2, b"m3g: error: interrupted\n")
        os._exit(INTERRUPTED)


def _importer(frame: FrameType | None) -> FrameType | None:
    """Return the frame with the import statement of the outermost import in progress; None without imports."""
    importer = None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            importer = frame.f_back
        frame = frame.f_back
    return importer


def _is_command(frame: FrameType) -> bool:
    """Return whether a frame belongs to a command, whose imports precede all its other work."""
    return str(frame.f_globals.get("__name__")).startswith("m3g.cli.")


def handle_interrupts() -> None:
    """Install the handler of SIGINT in this process, and unblock SIGINT, which delivers a pending signal."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handler, report = _Handler(), sys.unraisablehook

        def repeat_or_report(error: sys.UnraisableHookArgs) -> None:
            if error.exc_type is KeyboardInterrupt:  # discarded, for example by `__del__`
                handler.repeat()
            else:
                report(error)

        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = repeat_or_report
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


@contextlib.contextmanager
def raising_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGINT instead of exiting, because a command may have to clean up.

    Without `handle_interrupts`, in a user's program, nothing changes.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, _Handler):
        yield
        return
    handler.exits = False
    try:
        yield
    finally:
        handler.exits = True


@contextlib.contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Block SIGINT in child processes. In this process, a second thread receives it, so that handlers still run."""
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
