"""`m3g audit`: list the training entries that do not match their row."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from m3g._csv import print_csv
from m3g.cli.output import print_table
from m3g.cli.parser import Parser

USAGE = {"audit": "RUN [options]"}
DESCRIPTION = {
    "audit": """List the training entries that do not seem to match their row, the least reliable first.

  m3g train --views a.npy b.npy c.npy --mismatch true     train and estimate the reliability of entries
  m3g audit runs/m3g-1                                    list the entries that are more likely wrong than correct
  m3g audit runs/m3g-1 --count 100 --out entries.csv      write the 100 least reliable entries to a file

Columns: row of the data, view, reliability from 0 to 1, the most similar row if it is not the entry's own, and the
cosines of the entry with that row and with its own row. Without --count, a view is omitted if even its entries in
held-out rows often resemble other rows. mismatch.csv in the run folder contains the reliability of all evaluated
entries."""
}
TITLES = ("row", "view", "reliability", "likely row", "cosine", "cosine to own row")


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="folder of a run trained with --mismatch true")
    parser.add_argument(
        "--count", type=int | None, default=None, help="number of entries; by default all that are unreliable"
    )
    parser.add_argument("--out", type=str, default=None, help=".csv file to write instead of printing a table")
    parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    from m3g.training.mismatch.audit import audit
    from m3g.training.runs.files import write_csv

    entries, remark = audit(args.run, count=args.count, trust=args.trust)
    lines = []
    for entry, partner in entries:
        likely = ("", "", "") if partner is None else (*map(str, partner[:1]), *(f"{part:.2f}" for part in partner[1:]))
        lines.append([str(entry.row), entry.view, f"{entry.reliability:.3f}", *likely])
    if args.out is not None:
        write_csv(Path(args.out), TITLES, lines)
        print(f"{len(lines)} entries in {args.out}")
    elif not sys.stdout.isatty():
        print_csv(sys.stdout, TITLES, lines)
    elif lines:
        print_table(TITLES, lines)
    if remark:
        print(remark, file=sys.stderr)  # keep an empty table on stdout parseable
