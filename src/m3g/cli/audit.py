"""`m3g audit`: the entries of a table that do not belong to their row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from m3g._csv import print_csv
from m3g.cli.tables import write_csv

USAGE = {"audit": "RUN [options]"}
DESCRIPTION = {
    "audit": """List the entries of the training rows that do not seem to belong to their row, most doubtful first.

  m3g train --views a.npy b.npy c.npy --mismatch true     train, and watch for such entries
  m3g audit runs/m3g-1                                    those that are more likely wrong than right
  m3g audit runs/m3g-1 --count 100 --out doubtful.csv     the first hundred, to a file

The columns: row of the files, view, reliability from 0 to 1, the row it resembles most if that is another one, and the
cosine to that row and to its own. All entries with their reliability are in mismatch.csv of the run."""
}
TITLES = ("row", "view", "reliability", "likely row", "cosine", "cosine to own row")


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a run that was trained with --mismatch true")
    parser.add_argument("--count", type=int | None, default=None, help="how many entries; by default the doubtful ones")
    parser.add_argument("--out", type=str, default=None, help="a .csv file to write instead of a table on the screen")
    parser.add_run_options()


def run(args: Any, name: str) -> int:
    from m3g.training.mismatch.audit import audit, nothing_found

    hint = nothing_found(args.run) if args.count is None else ""
    found = [] if hint else audit(args.run, count=args.count, trust=args.trust)
    lines = []
    for entry, partner in found:
        likely = ("", "", "") if partner is None else (*map(str, partner[:1]), *(f"{part:.2f}" for part in partner[1:]))
        lines.append([str(entry.row), entry.view, f"{entry.reliability:.3f}", *likely])
    if args.out is not None:
        write_csv(Path(args.out), TITLES, lines)
        print(f"{len(lines)} entries in {args.out}")
    elif not sys.stdout.isatty():
        print_csv(sys.stdout, TITLES, lines)
    elif lines:
        _show(lines)
    if hint:
        print(hint, file=sys.stderr)  # a table of no lines may be read by another program
    return 0


def _show(lines: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{len(lines)} entries, most doubtful first", title_justify="left")
    for title in TITLES:
        table.add_column(title, justify="left" if title == "view" else "right")
    for line in lines:
        table.add_row(*line)
    Console().print(table)
