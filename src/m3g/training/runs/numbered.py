"""Numbered run folders, for runs without `--out`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from m3g.training.runs.files import cannot_write

RESERVED: set[Path] = set()  # folders of the current runs of this process, created by `reserved`


def make_numbered(parent: Path, name: str) -> Path:
    """Create and return the folder `parent/name-N` with the first free number N.

    `mkdir` is atomic, so processes that start at the same time get different numbers.
    """
    number = 1
    while True:
        folder = parent / f"{name}-{number}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            return folder
        except FileExistsError:
            if not parent.is_dir():
                raise ValueError(f"{parent} must be a folder, got a file: choose another with --out.") from None
            number += 1
        except FileNotFoundError:  # another process has just removed the empty parent
            continue
        except OSError as error:
            raise cannot_write(folder, error) from error


@contextlib.contextmanager
def reserved(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new folder of `make_numbered`, and remove it at the end or at SIGTERM if it is still empty.

    Parent folders that were created for it and are empty are removed as well.

    torchrun sends SIGTERM as soon as one process has failed, which may be before this one reports the same error.
    """
    created = [path for path in (parent, *parent.parents) if not path.exists()]
    folder = make_numbered(parent, name)

    def remove() -> None:
        for path in (folder, *created):
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()

    def terminate(number: int, _: object) -> None:
        remove()
        if signal.getsignal(number) is terminate:  # otherwise Lightning's handler calls this one and continues
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    previous = signal.getsignal(signal.SIGTERM)
    handled = previous is signal.SIG_DFL and threading.current_thread() is threading.main_thread()
    if handled:
        signal.signal(signal.SIGTERM, terminate)
    RESERVED.add(folder)
    try:
        yield folder
    finally:
        RESERVED.discard(folder)
        remove()
        if handled:
            signal.signal(signal.SIGTERM, previous)
