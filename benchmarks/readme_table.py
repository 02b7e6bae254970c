"""Speed table of the README, from the results of `python -m benchmarks solvers`.

python -m benchmarks.readme_table    writes the table from results/solvers.json
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
SOLVERS = Path(__file__).parent / "results" / "solvers.json"
SIZES = [(64, 2), (64, 3), (32, 4), (256, 3), (64, 4), (16, 6), (128, 4)]
EPSILON, TOLERANCE = 0.05, 1e-3
START, END = "<!-- written by python -m benchmarks solvers -->\n\n", "\n<!-- end -->\n"


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| n, k | m3g | OTT-JAX | speed-up |", "| --- | --- | --- | --- |"]
    for n, k in SIZES:
        ours, theirs = (_find(rows, program, n, k) for program in ("m3g", "ott-jax"))
        if ours is not None:
            ratio = _short(theirs["seconds"] / ours["seconds"]) if theirs else ""
            peer = _cell(theirs) if theirs else f"not run: its tensor takes {4 * n**k / 2**30:.1f} GiB"
            lines.append(f"| {n}, {k} | {_cell(ours)} | {peer} | {ratio} |")
    return "\n".join(lines) + "\n"


def write(rows: list[dict[str, Any]], readme: Path = README) -> None:
    """Replace the table between the two marks."""
    text = readme.read_text(encoding="utf-8")
    pattern = re.escape(START) + ".*?" + re.escape(END)
    readme.write_text(re.sub(pattern, lambda _: START + table(rows) + END, text, flags=re.S), encoding="utf-8")


def _find(rows: list[dict[str, Any]], program: str, n: int, k: int) -> dict[str, Any] | None:
    key = (program, n, k, EPSILON, TOLERANCE)
    for row in rows:
        if (row["program"], row["n"], row["k"], row["epsilon"], row.get("tol")) == key and "failed" not in row:
            return row
    return None


def _cell(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    time = f"{_short(seconds)} s" if seconds >= 1 else f"{_short(1e3 * seconds)} ms"
    return f"{time}, {row['peak_bytes'] / 2**20:.0f} MiB"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:#.2g}".removesuffix(".")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.readme_table", description=__doc__.splitlines()[0]).parse_args()
    write(json.loads(SOLVERS.read_text())["rows"])
