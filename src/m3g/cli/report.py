"""`m3g report` and `m3g compare`: results of runs on an HTML page or in the terminal."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from m3g.cli.output import check_out, print_table
from m3g.cli.parser import Parser

USAGE = {"report": "RUN [RUN ...] [options]", "compare": "RUN RUN [RUN ...]"}
DESCRIPTION = {
    "report": """Write a self-contained HTML report of one or more runs: settings, curves, scores compared with linear
CCA, raw features and chance, matrices between views, couplings, and an interactive map of the embeddings.

  m3g report runs/m3g-1                                 writes runs/m3g-1/report.html
  m3g report runs/m3g-1 runs/infonce-pwe-1 --out a.html

The page works offline.""",
    "compare": """Compare the test results of several runs, with 95 % intervals and paired differences from the first.

  m3g compare runs/m3g-1 runs/infonce-pwe-1
  m3g compare runs/*                        runs that differ only in their seed form one column

Differences are paired by seed if two columns share several seeds, and by test row if they share one. If the seeds have
different splits (split_seed), intervals have the correction of Nadeau and Bengio for overlapping splits.""",
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("runs", type=str, nargs="+", help="folders of finished runs")
    if name == "report":
        parser.add_argument(
            "--out",
            type=str,
            default=None,
            help="new .html file; by default report.html in the first run's folder, which is overwritten",
        )
        parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    seen: set[Path] = set()
    for folder in (Path(str(run)).resolve() for run in args.runs):
        if folder in seen:
            raise ValueError(f"runs must be different folders, got {folder} twice.")
        seen.add(folder)
    (_report if name == "report" else _compare)(args)


def _report(args: Namespace) -> None:
    from m3g.report import collect, page
    from m3g.training.runs.files import write_text

    out = check_out(args.out, ".html") or Path(args.runs[0]) / "report.html"
    write_text(out, page([collect(run, trust=args.trust) for run in args.runs]))
    print(f"page      {out}")


def _compare(args: Namespace) -> None:
    from m3g.report.compare import NOTE, OTHER_DATA, PAIRED, comparison, differences, same_data
    from m3g.report.facts import read_measured

    if len(args.runs) < 2:
        raise ValueError(f"runs must be at least 2 folders to compare, got {len(args.runs)}.")
    runs = [read_measured(run, str(run)) for run in args.runs]
    print_table(*comparison(runs))
    print(NOTE)
    if not same_data(runs):
        print(OTHER_DATA)
    head, rows = differences(runs)
    if rows:
        print_table(head, rows)
        print(PAIRED)
