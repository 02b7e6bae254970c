"""The command `m3g` in a process that can be killed, forked from one that has already imported everything.

A fresh interpreter takes ten seconds to import everything. A forked process takes none, and runs the same command.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from m3g._interrupts import handle_interrupts
from m3g.cli import main


class CommandResult(NamedTuple):
    """Result of a command: exit code (negative for a signal), output and seconds."""

    code: int
    out: str
    error: str
    seconds: float

    @property
    def refused(self) -> bool:
        """Whether the exit code is 2 with one line on standard error, as documented for wrong input."""
        return self.code == 2 and len(self.error.strip().splitlines()) == 1


def warm_up() -> None:
    """Import the dependencies of the commands before forking; one thread, because threads do not survive a fork."""
    import lightning.pytorch  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch

    import m3g.training.loop.fit  # noqa: F401

    torch.set_num_threads(1)


class RunningCommand:
    """Start `m3g ARGUMENTS` in `folder`; its files are limited to `largest_file` bytes."""

    def __init__(self, arguments: list[str], *, folder: Path, largest_file: int | None = None) -> None:
        self._streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - closed by `end`
        self._start = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the child accepts it once it runs the command
        self.pid = os.fork()
        if self.pid == 0:
            _become_command(arguments, folder, [stream.fileno() for stream in self._streams], largest_file)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def end(self, *, limit: float, sent: signal.Signals | None = None, after: float = 0.0) -> CommandResult:
        """Wait for the exit; send `sent` after `after` seconds, and SIGKILL to the process group at the limit."""
        code = None
        if sent is not None:
            code = self._wait(after)
            if code is None:
                os.kill(self.pid, sent)
        if code is None:
            code = self._wait(limit)
        if code is None:
            os.killpg(self.pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        seconds = time.monotonic() - self._start
        texts = []
        for stream in self._streams:
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
            stream.close()
        return CommandResult(code, *texts, seconds)

    def _wait(self, limit: float) -> int | None:
        while time.monotonic() - self._start < limit:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        return None


def m3g_command(
    arguments: list[str],
    *,
    folder: Path,
    kill_after: float | None = None,
    limit: float = 120.0,
    largest_file: int | None = None,
) -> CommandResult:
    """Run `m3g ARGUMENTS` in `folder`; send SIGKILL after `kill_after` seconds, if given."""
    started = RunningCommand(arguments, folder=folder, largest_file=largest_file)
    return started.end(limit=limit, sent=None if kill_after is None else signal.SIGKILL, after=kill_after or 0.0)


def _become_command(arguments: list[str], folder: Path, streams: list[int], largest_file: int | None) -> None:
    """Run the forked process; does not return."""
    code = 1
    try:
        os.setpgid(0, 0)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
        os.chdir(folder)
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the program runs in the background
        handle_interrupts()
        code = main(arguments) or 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
