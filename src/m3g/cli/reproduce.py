"""`m3g reproduce`: an experiment of the documentation, from scratch."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

from m3g import _checks as checks

USAGE = {"reproduce": "default-set [options]"}
DESCRIPTION = {
    "reproduce": """Repeat an experiment:

  m3g reproduce default-set   M3G and pairwise InfoNCE on the six-view digits, both tuned over a grid of one size,
                              three seeds and splits each; about a quarter of an hour on one core"""
}


def arguments(parser: Any, name: str) -> None:
    parser.add_argument("experiment", type=str, help="default-set")
    parser.add_argument("--out", type=str, default="runs/default-set", help="a folder that does not exist yet")
    parser.add_argument("--seeds", type=int, default=3, help="seeds, each with its own split of the rows")


def run(args: Any, name: str) -> int:
    from m3g.cli.listing import print_table
    from m3g.experiments.default_set import COLUMNS, compare
    from m3g.training.files import write_json
    from m3g.training.run import environment

    checks.one_of("experiment", args.experiment, ("default-set",))
    checks.positive_int("--seeds", args.seeds)
    out = Path(args.out)
    if out.exists():
        raise ValueError(f"--out must be a folder that does not exist yet, but {out} does.")
    out.mkdir(parents=True)
    terminal = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()):  # what each of the many trainings says about itself
        result = compare(out, seeds=range(args.seeds), tell=lambda line: print(line, file=terminal, flush=True))
    write_json(out / "default_set.json", {**result, "environment": environment()})
    rows = [
        (
            method,
            *(
                f"{100 * row['mean'][c]:.1f}±{100 * row['deviation'][c]:.1f}" if c in row["mean"] else "—"
                for c in COLUMNS
            ),
        )
        for method, row in {**result["methods"], "raw features": result["raw"]}.items()
    ]
    print_table(["test, %", *COLUMNS.values()], rows)
    print(f"numbers   {out / 'default_set.json'}")
    return 0
