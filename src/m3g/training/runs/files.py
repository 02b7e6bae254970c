"""Atomic writes, locks and related file operations."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout

from m3g._csv import print_csv

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space, quota exceeded, file too large
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` atomically.

    The new content is written to a temporary file in the same folder, flushed to the device, and renamed to `path`. If
    anything fails before the renaming, `path` is unchanged and the temporary file is removed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def cannot_write(path: str | os.PathLike[str], error: OSError) -> ValueError:
    """Return the error for a file that cannot be written."""
    if ran_out_of_space(error):
        return ValueError(
            f"{path} cannot be written because the disk is full or the file is too large ({error}): free some "
            "space; m3g train --resume continues a run from its last complete checkpoint."
        )
    return ValueError(
        f"{path} must be a file that can be written, got an error ({error.strerror or error}): check the permissions "
        "of its folder."
    )


def append_text(path: str | os.PathLike[str], text: str) -> None:
    """Append to a file; a symbolic link raises, except on Windows, where it is followed."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINKS, 0o666)
        with open(descriptor, "a", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with atomic(path) as file:
        file.write(text.encode())


def write_csv(path: str | os.PathLike[str], head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table; cells are escaped so that spreadsheets do not evaluate them as formulas."""
    text = io.StringIO()
    print_csv(text, head, rows)
    write_text(path, text.getvalue())


def write_json(path: str | os.PathLike[str], content: object) -> None:
    """Write portable JSON: non-finite numbers become null."""
    write_text(path, json.dumps(_plain(content), indent=2, allow_nan=False) + "\n")


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Delete temporary files of killed processes."""
    for leftover in Path(folder).glob(".*.tmp"):
        if not leftover.is_dir() or leftover.is_symlink():
            leftover.unlink()


def reject_links(folder: str | os.PathLike[str]) -> None:
    """Reject a folder that contains symbolic links, through which files elsewhere would be written or removed."""
    for parent, folders, files in os.walk(folder):  # does not follow links below the folder
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                raise ValueError(
                    f"run must be a folder without symbolic links, but {path} is one: replace it with its target."
                )


class Lock:
    """Lock file, held by one process at a time; the system releases it when that process ends."""

    def __init__(self, path: str | os.PathLike[str], *, what: str) -> None:
        self._lock = FileLock(path)
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise ValueError(f"{what}, but another process is training in it: wait until it has ended.") from error
        except OSError as error:
            raise cannot_write(path, error) from error

    def release(self) -> None:
        self._lock.release()


def ran_out_of_space(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is due to a full disk, an exceeded quota or the maximum file size."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def _flush_folder(folder: Path) -> None:
    """Make the new name durable; skipped on Windows, where a folder cannot be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(content: object) -> object:
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if hasattr(content, "tolist"):
        return _plain(content.tolist())
    if isinstance(content, float) and content not in (float("inf"), float("-inf")) and content == content:
        return content
    return None if isinstance(content, float) else content
