"""Run the benchmarks: `make bench`, or `python -m benchmarks [solvers losses sampled …]`.

Results are written to benchmarks/results/ as JSON, Markdown tables and plots. Compare ratios within one run: times
differ from machine to machine and from hour to hour.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

SUITES = ("solvers", "losses", "sampled")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("suites", nargs="*", default=SUITES, help=f"which ones to run: {', '.join(SUITES)}")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where to write")
    options = parser.parse_args()
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"suites takes {', '.join(SUITES)}, got {suite!r}.")
    options.results.mkdir(parents=True, exist_ok=True)
    for suite in options.suites:
        print(f"== {suite}", flush=True)
        importlib.import_module(f"benchmarks.{suite}").run(options.results)


if __name__ == "__main__":
    main()
