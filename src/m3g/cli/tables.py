"""Table of results: the first rows in the terminal, all rows in a .csv file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from m3g._csv import print_csv
from m3g.cli.listing import print_table


def check_out(name: str | None, *, suffix: str = ".csv") -> Path | None:
    """Validate the file name of `--out` before any computation."""
    if name is None:
        return None
    out = Path(name)
    if out.suffix != suffix:
        article = "an" if suffix == ".npz" else "a"
        raise ValueError(f"--out must be the name of {article} {suffix} file, got {name!r}.")
    if out.exists():
        raise ValueError(f"--out must be a file that does not exist yet, but {out} does: delete it or choose another.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must be a file in an existing folder, but there is no folder {out.parent}.")
    return out


def show_table(header: Sequence[str], rows: Sequence[Sequence[object]], *, most: int) -> None:
    print_table(header, rows[:most])
    if len(rows) > most:
        print(f"... and {len(rows) - most} more")


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from m3g.training.runs.files import atomic

    with atomic(path, "w") as file:
        print_csv(file, header, rows)
