"""Search for files and folders in the user's `--data` folder, and storage of converted arrays."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np

from m3g.training.runs.files import atomic

Arrays = dict[str, np.ndarray]


class MissingData(ValueError):
    """The `--data` folder does not contain a data set in any supported layout."""


def find_file(source: Path | None, *names: str, hint: str = "") -> Path:
    """Return the first of these files in the data folder, or in a folder directly below it."""
    for name in names if source is not None else ():
        for path in (source / name, *sorted(source.glob(f"*/{name}"))):  # type: ignore[operator,union-attr]
            if path.is_file():
                return path
    raise MissingData(f"--data must be a folder that contains {' or '.join(names)}{hint}, got {shown(source)}.")


def find_folder(source: Path | None, parts: Collection[str], *, hint: str) -> dict[str, Path]:
    """Return, by name, the subfolders `parts` of the data folder or of a folder up to two levels below it.

    Case and separators are ignored: `real_world` matches "Real World".
    """
    for folder in _folders(source):
        folders = {_plain(path.name): path for path in folder.iterdir() if path.is_dir()}
        if all(_plain(part) in folders for part in parts):
            return {part: folders[_plain(part)] for part in parts}
    raise MissingData(f"--data must be a folder that contains {hint}, got {shown(source)}.")


def check_paths(source: Path | None, *names: str, made_by: str = "") -> None:
    """Raise `MissingData` if the data folder lacks one of these files or folders, which paper-scale runs read there."""
    for name in names:
        if source is None or not (source / name).exists():
            hint = f" (made by {made_by})" if made_by else ""
            raise MissingData(f"--data must be a folder that contains {name}{hint}, got {shown(source)}.")


def _folders(source: Path | None) -> Iterator[Path]:
    if source is not None:
        yield source
        below = [path for path in sorted(source.iterdir()) if path.is_dir()]
        yield from below
        for folder in below:
            yield from (path for path in sorted(folder.iterdir()) if path.is_dir())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def shown(source: Path | None) -> str:
    """Return the data folder as text for a message."""
    return "no folder" if source is None else str(source)


def once(target: Path, name: str, make: Callable[[], Arrays]) -> None:
    """Write the arrays of `make` to `target/name` unless the file exists; several processes may call this at once."""
    if (target / name).is_file():
        return
    arrays = make()
    target.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle
    with atomic(target / name) as file:
        file.write(buffer.getbuffer())
