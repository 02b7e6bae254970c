"""`m3g tune`: search for settings on the validation split."""

from __future__ import annotations

import shlex
import subprocess
import sys
from argparse import SUPPRESS, Namespace

from m3g import _values as checks
from m3g.cli import train as train_command
from m3g.cli.parser import Parser

# Options that `m3g train` does not have, or not with the same meaning; the printed command contains all others.
OPTIONS = ("out", "trials", "metric", "losses", "workers", "worker")
NOT_SUPPORTED = ("resume", "data_root", "dry_run", "print_config", "accept_changes")  # options of `m3g train`

DESCRIPTION = {
    "tune": """Search for the temperature, learning rate, width and (with --losses) loss with the best validation score.

  m3g tune --views a.npy b.npy c.npy --trials 30                      recall at 1 between views
  m3g tune --views a.npy b.npy --labels y.npy --metric linear         accuracy of a linear probe
  m3g tune --views a.npy b.npy --losses m3g infonce-pwe symile        also search over losses
  m3g tune --views a.npy b.npy --trials 60 --workers 2                two processes at once
  m3g tune --views a.npy b.npy --trials 60 --out runs/tune            continue the study in runs/tune

All settings of m3g train except --logger and --loop.patience apply to every trial. A temperature or width that is set
is not searched, nor is a learning rate that differs from the default, nor the temperature if epsilon is set. The width
is searched only if all views are vectors or columns of numbers and categories, --encoder is mlp, residual or not set,
and no --view.NAME option is set. After five trials, a trial below the median of earlier ones is stopped. The test split
is not used. The folder of --out contains the study (study.log, an Optuna journal), trials.csv and study.png. The
command that trains with the best settings is printed."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("--trials", type=int, default=30, help="total number of trials of the study")
    parser.add_argument("--metric", type=str, default="retrieval", help="retrieval, linear or knn, on validation rows")
    parser.add_argument("--losses", type=str, nargs="+", default=[], help="losses to search over; by default --loss")
    parser.add_argument("--workers", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--worker", type=int, default=0, help=SUPPRESS)  # index of this process, set by --workers
    train_command.arguments(parser, "train")
    parser.set_defaults(out="runs/tune")
    parser.set_help(
        out="folder of the study; an existing study is continued",
        loss="loss of every trial if --losses is not set",
        **dict.fromkeys(NOT_SUPPORTED, SUPPRESS),
    )


prepare = train_command.prepare
names = train_command.names


def run(args: Namespace, name: str) -> None:
    checks.positive_int("--workers", args.workers)
    if args.resume is not None or args.dry_run or args.print_config:
        raise ValueError("m3g tune does not support --resume, --dry-run or --print_config: omit them.")
    config, _ = train_command.requested(args)
    checks.extra("optuna", "tune")
    from m3g.training.tuning import train_arguments, tune, write_study

    options = {"trials": args.trials, "metric": args.metric, "choices": args.losses, "trust": args.trust}
    workers = [
        subprocess.Popen([sys.executable, "-m", "m3g", *args.command_line, "--workers", "1", "--worker", str(number)])
        for number in range(1, args.workers)
    ]
    try:
        study = tune(config, args.out, worker=args.worker, **options)
    finally:
        codes = [worker.wait() for worker in workers]
    if any(codes):
        raise ValueError(
            f"{sum(map(bool, codes))} of {args.workers} processes (--workers) failed: see their errors above."
        )
    if args.worker:
        return
    picture = write_study(study, args.out, args.metric)
    print(f"best      {study.best_value:.4f} on the validation split, trial {study.best_trial.number}")
    print(f"command   m3g train {shlex.join([*_shared_arguments(args), *train_arguments(study.best_params)])}")
    print(f"study     {args.out}/study.log\npicture   {picture}")


def _shared_arguments(args: Namespace) -> list[str]:
    """Return the arguments of the command line that `m3g train` also accepts."""
    rest, shared = list(args.command_line[1:]), []
    while rest:
        argument = rest.pop(0)
        option, equals, _ = argument.removeprefix("--").partition("=")
        values = []
        while not equals and rest and not rest[0].startswith("--"):
            values.append(rest.pop(0))
        if not argument.startswith("--") or option not in OPTIONS:
            shared += [argument, *values]
    return shared
