"""`m3g reproduce`: the runs, tables and figures of an experiment."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from m3g import _values as checks
from m3g.cli.parser import Parser
from m3g.experiments.engine import registry

NAMES = {**registry.NAMES, "summary": "one page with all finished results and the published ones"}

USAGE = {"reproduce": "NAME [options]"}
DESCRIPTION = {
    "reproduce": """Repeat an experiment of the documentation: execute its runs, and write its tables and figures.

  m3g reproduce domainnet --data SETS --plan      write a settings file per run, and print the expected time
  m3g reproduce domainnet --data SETS --jobs 2    execute the runs, two at a time; repeat to continue
  m3g reproduce domainnet --collect               write tables and figures of the finished runs, at any time
  m3g reproduce domainnet --data SETS --slurm     write a job array for a cluster

"""
    + "\n".join(f"  {name:12} {about}" for name, about in NAMES.items())
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("experiment", type=str, help=", ".join(NAMES))
    parser.add_argument(
        "--scale", type=str, default="laptop", help="laptop, or paper for the paper's data and networks"
    )
    parser.add_argument("--data", type=str, default=None, help="folder of the data sets")
    parser.add_argument(
        "--out", type=str, default=None, help="folder of the experiment (runs/NAME[-paper]); for summary, of all (runs)"
    )
    parser.add_argument("--seeds", type=int, default=None, help="number of seeds; by default that of the experiment")
    parser.add_argument("--methods", type=str, nargs="+", default=None, help="only these methods")
    parser.add_argument("--sets", type=str, nargs="+", default=None, help="only these data sets")
    parser.add_argument(
        "--add", type=str, default=None, help="Python file with your data sets and losses, only for `views`"
    )
    parser.add_argument(
        "--plan", action="store_true", help="write a settings file per run, and print the expected time and memory"
    )
    parser.add_argument("--run", type=str, default=None, help="execute the run with this id, unless it is finished")
    parser.add_argument("--jobs", type=int, default=1, help="number of runs at a time")
    parser.add_argument("--collect", action="store_true", help="only write tables and figures of the finished runs")
    parser.add_argument("--slurm", action="store_true", help="only write the plan and the scripts of a job array")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of each task of the array (slurm)")
    parser.add_argument("--gpus", type=int, default=0, help="processes and GPUs on each node (slurm)")
    parser.add_argument("--hours", type=float, default=24.0, help="time limit of each task in hours (slurm)")
    parser.add_argument("--keep", action="store_true", help="keep checkpoints and networks of finished runs")


def run(args: Namespace, name: str) -> int:
    from m3g.experiments.engine.command import reproduce

    checks.one_of("experiment", args.experiment, NAMES)
    if args.data is not None and not Path(args.data).is_dir():
        raise ValueError(f"--data must be a folder that exists, got {args.data!r}: check the path.")
    return reproduce(args)
