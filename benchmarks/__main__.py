"""Run the benchmarks: `make bench`, or `python -m benchmarks [solvers losses sampled multiway processes]`.

Results are written to benchmarks/results/ as JSON, Markdown tables and plots. Compare ratios within one run: times
vary between machines and with the load.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

SUITES = ("solvers", "losses", "sampled", "multiway", "processes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("suites", nargs="*", default=SUITES, help=f"suites to run: {', '.join(SUITES)}")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="output folder")
    parser.add_argument("--only", metavar="PART", help="one part of a suite; an unknown name lists the parts")
    options = parser.parse_args()
    for suite in options.suites:
        if suite not in SUITES:
            parser.error(f"suites must be among {', '.join(SUITES)}, got {suite!r}.")
    for suite in options.suites if options.only else []:
        known = getattr(importlib.import_module(f"benchmarks.{suite}"), "PARTS", ())
        if options.only not in known:
            parser.error(f"--only must be among {', '.join(known) or 'nothing'} with {suite}, got {options.only!r}.")
    options.results.mkdir(parents=True, exist_ok=True)
    for suite in options.suites:
        print(f"== {suite}", flush=True)
        module = importlib.import_module(f"benchmarks.{suite}")
        module.run(options.results, **({"only": options.only} if options.only else {}))


if __name__ == "__main__":
    main()
