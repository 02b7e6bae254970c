"""Search for the files that a table refers to, including files that were moved to another folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


class MissingFileError(ValueError):
    """A file that a table refers to does not exist, or is outside the folders of the table."""


def below(root: Path, path: Path) -> Iterator[Path]:
    """Yield the paths in `root` that end like `path`, the longest first.

    Example:
        >>> [path.as_posix() for path in below(Path("new"), Path("/old/data/a.npy"))]
        ['new/old/data/a.npy', 'new/data/a.npy', 'new/a.npy']
    """
    parts = [part for part in path.parts if part not in (path.anchor, "..", ".")]
    yield from (root.joinpath(*parts[first:]) for first in range(len(parts)))


@dataclass(frozen=True)
class Folders:
    """Folders that are searched for the files that a table refers to.

    Attributes:
        table: folder of the table; paths in cells are relative to it.
        root: new folder of files that were moved, searched first (`below`); None if no files were moved.
    """

    table: Path
    root: Path | None = None

    @cached_property
    def _resolved(self) -> list[Path]:
        return [folder.resolve() for folder in (self.table, self.root) if folder is not None]

    def contain(self, path: Path) -> bool:
        """Return whether a path is in one of the folders, with symbolic links resolved."""
        resolved = path.resolve()
        return any(resolved.is_relative_to(folder) for folder in self._resolved)

    def find(self, cell: str, *, allow_outside: bool) -> Path | None:
        """Return the file whose path is in a cell, possibly with the separators of Windows; None if there is none.

        Unless `allow_outside` is set, files outside the folders are not searched, so that the result does not reveal
        whether they exist.
        """
        for name in dict.fromkeys([cell, cell.replace("\\", "/")]):
            moved = () if self.root is None else below(self.root, Path(name))
            for path in (*moved, self.table / name):
                if (allow_outside or self.contain(path)) and path.is_file():
                    return path
        return None
