"""The command `m3g` in a process of its own that can be killed: forked from one that has done the imports.

A fresh interpreter needs ten seconds to import everything, a fork none; what is killed is the same.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended: its exit code (negative: the signal), what it wrote, and the seconds it took."""

    code: int
    out: str
    error: str
    seconds: float

    @property
    def refused(self) -> bool:
        """Exit code 2 and one line on standard error, as promised for wrong input."""
        return self.code == 2 and len(self.error.strip().splitlines()) == 1


def warm_up() -> None:
    """Import what the commands import, so that forks find it there; one thread, since threads do not survive a fork."""
    import lightning.pytorch  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch

    import m3g.cli
    import m3g.training.loop.fit  # noqa: F401

    torch.set_num_threads(1)


def m3g_command(arguments: list[str], *, folder: Path, kill_after: float | None = None, limit: float = 120.0) -> Ended:
    """Run `m3g ARGUMENTS` in `folder`; with `kill_after` it gets SIGKILL after so many seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become_command(arguments, folder, out.fileno(), error.fileno())
        code = _wait(child, began, limit if kill_after is None else kill_after)
        seconds = time.monotonic() - began
        texts = []
        for stream in (out, error):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Ended(code, *texts, seconds)


def _wait(child: int, began: float, limit: float) -> int:
    while time.monotonic() - began < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become_command(arguments: list[str], folder: Path, out: int, error: int) -> None:
    """Does not return: what runs here is the forked process."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(out, 1)
        os.dup2(error, 2)
        os.chdir(folder)
        from m3g.cli import main

        code = main(arguments) or 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
