"""`m3g evaluate`: evaluate a finished run again."""

from __future__ import annotations

from argparse import Namespace

from m3g.cli.parser import Parser

USAGE = {"evaluate": "RUN [options]"}
DESCRIPTION = {
    "evaluate": """Evaluate a trained run on its test split: probes, retrieval between views, polymatching, geometry.

  m3g evaluate runs/m3g-1
  m3g evaluate runs/m3g-1 --few_shot true       also train probes with 10, 50, ... labels per class
  m3g evaluate runs/m3g-1 --paper_probe true    also train the paper's linear probe (SGD, learning rate sweep)

Rewrites results.json and the plots in the run folder."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("run", type=str, help="the folder of a finished run")
    parser.add_argument(
        "--paper_probe",
        type=bool,
        default=False,
        help="also train the paper's linear probe, which takes about a minute",
    )
    parser.add_argument(
        "--few_shot",
        type=bool | None,
        default=None,
        help="also train the paper's probes with 10, 50, 100 and 1000 labels per class; by default only for signals",
    )
    parser.add_run_options()


def run(args: Namespace, name: str) -> None:
    from m3g.training.runs.evaluate import evaluate_run, show

    report, pictures = evaluate_run(args.run, trust=args.trust, paper_probe=args.paper_probe, few_shot=args.few_shot)
    show(report, pictures)
