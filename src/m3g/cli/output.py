"""Output of commands: validation of `--out`, and tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def check_out(name: str | None, *suffixes: str) -> Path | None:
    """Return the path of `--out`; raise unless it is a new file with one of the suffixes in an existing folder."""
    if name is None:
        return None
    out = Path(name)
    if out.suffix not in suffixes:
        raise ValueError(f"--out must be a file name with the ending {' or '.join(suffixes)}, got {name!r}.")
    if out.exists():
        raise ValueError(f"--out must be a file that does not exist yet, but {out} does: delete it or choose another.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must be a file in an existing folder, but there is no folder {out.parent}.")
    return out


def check_new_folder(name: str | None) -> Path | None:
    """Return the path of `--out`; raise if it exists."""
    if name is not None and Path(name).exists():
        raise ValueError(f"--out must be a folder that does not exist yet, but {name} does: choose another name.")
    return None if name is None else Path(name)


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]], *, max_rows: int | None = None) -> None:
    """Print a table with rich; with `max_rows`, only the first rows and the number of the others."""
    from rich.console import Console
    from rich.table import Table

    grid = Table()
    for title in head:
        grid.add_column(title, no_wrap=title == head[0], overflow="fold")
    for row in rows[:max_rows]:
        grid.add_row(*map(str, row))
    Console().print(grid)
    if max_rows is not None and len(rows) > max_rows:
        print(f"... and {len(rows) - max_rows} more")
