"""`m3g train`: train encoders of k views, evaluate them and plot the results."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from argparse import Namespace, _ArgumentGroup
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from m3g._catalogue import DATA, ENCODERS, LOSSES
from m3g._options import Options
from m3g._values import existing, positive_int
from m3g.cli.command_line import ParsedArguments, read_settings
from m3g.cli.launch import from_first, run_in_processes, share_with_others
from m3g.cli.parser import Parser, data_root
from m3g.training.loop.processes import is_first, started
from m3g.training.runs.folder import Run
from m3g.training.runs.location import path_options, split_key
from m3g.training.runs.numbered import reserved
from m3g.training.settings.config import GROUPS, Config, flat

# Options that are not settings of a run; they are skipped in settings files.
COMMAND_OPTIONS = (
    *("out", "resume", "data_root", "views", "table", "labels", "groups", "split"),
    *("trust", "accept_changes", "dry_run"),
)

DESCRIPTION = {
    "train": """Learn a representation from k views of the same objects, and evaluate it.

  m3g train                                     the built-in six-view digits
  m3g train --views a.npy b.npy c.npy           your own files (.npy .mat .csv .xlsx ...), one per view
  m3g train --table objects.csv --labels breed  a table (.csv .xlsx .json .parquet or a folder) with a row per object;
                                                the columns are paths of images and sounds, text, or numbers
  m3g train --loss infonce-pwe --loss_options.temperature 0.1
  m3g train --logger tensorboard wandb          also record the run with these trackers (or csv, mlflow, trackio)
  m3g train --config my.yaml --loop.epochs 50   a settings file, with one change
  m3g train --config eeg --data_options.paths '[a.npz]'   the paper's settings: eeg, imagenet, domainnet
  m3g train --print_config > my.yaml            write a settings file with all defaults
  m3g train --config my.yaml --dry-run          build everything, run one batch, write nothing
  m3g train --resume runs/m3g-1                 continue after an interruption
  m3g train --resume runs/m3g-1 --loop.epochs 40   extend a finished run to 40 epochs in total
  m3g train --resume runs/m3g-1 --data-root /data  continue after the data was moved

Everything is written to one folder, by default the next free runs/LOSS-NUMBER."""
}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("--config", type=str, help="a YAML settings file, or imagenet, domainnet, eeg")
    parser.add_argument("--print_config", action="store_true", help="print all settings as YAML and exit")
    parser.add_argument(
        "--out", type=str, default=None, help="output folder; must not exist; by default the next free runs/LOSS-NUMBER"
    )
    parser.add_argument(
        "--resume",
        type=str,
        nargs="?",
        const="",
        default=None,
        help="continue the run in this folder; without a folder, the newest run below runs/",
    )
    parser.add_argument(
        "--views", type=str, nargs="+", default=None, help="your files, one per view; implies --data arrays"
    )
    parser.add_argument("--table", type=str, default=None, help="a table with a row per object; implies --data objects")
    parser.add_argument(
        "--labels", type=str, default=None, help="class labels: a file for --views, a column of --table"
    )
    parser.add_argument(
        "--groups", type=str, default=None, help="column of --table; rows with equal values are in the same split"
    )
    parser.add_argument("--split", type=str, default=None, help="column of --table with the values train, val, test")
    parser.add_run_options()
    parser.add_argument(
        "--dry_run", "--dry-run", action="store_true", help="build everything, run one batch, write nothing"
    )
    parser.add_argument(
        "--accept_changes",
        action="store_true",
        help="resume even if config.yaml differs from the settings in the checkpoint",
    )
    for group, kind in (("", Config), *GROUPS.items()):
        _add_settings(parser.add_argument_group(group or "settings"), kind, f"{group}." if group else "")


def _add_settings(parser: _ArgumentGroup, kind: type, prefix: str) -> None:
    """Add settings for --help only; `prepare` removes them from the arguments before the parser runs."""
    from docstring_parser.google import parse

    meanings = {part.arg_name: " ".join((part.description or "").split()) for part in parse(kind.__doc__ or "").params}
    for field in dataclasses.fields(kind):
        if field.name not in GROUPS:
            name, default = field.name, field.default if field.default is not dataclasses.MISSING else None
            shown = ".NAME.OPTION" if name == "view" else ".NAME" if name.endswith("_options") else ""
            parser.add_argument(f"--{prefix}{name}{shown}", metavar="VALUE", default=default, help=meanings[name])


def names() -> list[str]:
    """Return the options of all losses, data sets and encoders, as suggestions for a misspelt option."""
    groups = {"data_options": DATA, "loss_options": LOSSES, "encoder_options": ENCODERS}
    return [
        f"--{group}.{option}"
        for group, entries in groups.items()
        for entry in entries.values()
        for option in entry.options()
    ]


def prepare(arguments: list[str]) -> tuple[ParsedArguments, list[str]]:
    """Split the arguments of the command line into settings of the run and other arguments."""
    given = read_settings(arguments, ignored=COMMAND_OPTIONS)
    return given, given.others


def _with_files(settings: Options, args: Namespace) -> Options:
    """Merge --views, --table, --labels, --groups and --split into the settings."""
    given = [option for option in ("table", "views") if getattr(args, option) is not None]
    for option, required in (("labels", "--views or --table"), ("groups", "--table"), ("split", "--table")):
        if getattr(args, option) is not None and not any(f"--{name}" in required for name in given):
            raise ValueError(f"--{option} requires {required}, got none: add it or omit --{option}.")
    if not given:
        return settings
    data = "objects" if args.table is not None else "arrays"
    if data == "arrays" and len(args.views) < 2:
        raise ValueError(f"--views must be k >= 2 files, one per view, got {len(args.views)}.")
    if settings.get("data", data) not in (data, Config().data):
        raise ValueError(
            f"--{given[0]} must be used with the data set {data}, got --data {settings['data']}: omit one of them."
        )
    options = settings.get("data_options", {})
    if not isinstance(options, dict):
        return settings  # reported when all settings are validated
    for option, name in (("table",) * 2, ("views", "paths"), ("labels",) * 2, ("groups",) * 2, ("split",) * 2):
        value = getattr(args, option)
        if value is not None and options.setdefault(name, value) != value:
            raise ValueError(
                f"--{option} must not be combined with data_options.{name}, got {value} and {options[name]}: omit one."
            )
    return {**settings, "data": data, "data_options": options}


def settings(args: Namespace) -> Config:
    """Return the validated settings of the arguments."""
    return Config.from_dict(_with_files(args.given.settings, args), origin=args.given.origin)


def _check_files(config: Config, args: Namespace) -> None:
    """Reject data files that do not exist, before the imports that reading them requires."""
    options = {"paths": "views", "table": "table", "labels": "labels"}
    for name, paths in path_options(config).items():
        option = f"--{options[name]}" if getattr(args, options.get(name, ""), None) else f"data_options.{name}"
        for path in paths:
            existing(option, split_key(path)[0])


def requested(args: Namespace) -> tuple[Config, Run]:
    """Return the validated settings and the folder of the run, a new one or one to resume."""
    if args.resume is None:
        if args.data_root is not None:
            raise ValueError("--data-root must be used with --resume, got a new run: pass the new paths of the data.")
        config = settings(args)
        _check_files(config, args)
        return config, Run(args.out if args.out is not None else next_run(Path("runs"), config.loss))
    given = flat(_with_files(args.given.settings, args))
    epochs = given.pop("loop.epochs", None)
    if given or args.out is not None:
        raise ValueError(
            "--resume must not be combined with --out or settings other than --loop.epochs, because a run keeps its "
            "folder and settings: omit them, or start a new run."
        )
    run = Run(args.resume if args.resume else newest_run(Path("runs")))
    run.data_root = data_root(args)
    return run.open() if epochs is None else run.extend(positive_int("loop.epochs", cast(int, epochs))), run


def run(args: Namespace, name: str) -> int:
    config, folder = requested(args)
    if args.print_config:
        print(config.to_yaml(), end="")
        return 0
    if config.loop.devices > 1 and not args.dry_run and not started():
        return run_in_processes(config.loop.devices, args.command_line)
    if args.dry_run:
        from m3g.training.loop.dry_run import dry_run

        print(dry_run(config, trust=args.trust))
        return 0
    from m3g.training.loop.build import build_data
    from m3g.training.loop.fit import fit
    from m3g.training.loop.loggers import Loggers
    from m3g.training.runs.evaluate import finish, watch

    resume = args.resume is not None
    with contextlib.ExitStack() as stack:
        if not resume and args.out is None:
            folder = Run(stack.enter_context(numbered_folder(Path("runs"), config.loss)))
        elif not resume and is_first():
            folder.check_new()  # before reading the data, which may take a long time
        loggers = stack.enter_context(Loggers(config, folder))
        data = build_data(config, folder if resume else None)
        changes = {"resume": resume, "accept_changes": args.accept_changes}
        fit(config, folder, data, loggers, watch(config, folder), trust=args.trust, **changes)
        finish(folder, data, trust=args.trust)
        loggers.log_results()
    return 0


def next_run(parent: Path, name: str) -> Path:
    """Return `parent/name-N` with the first free number N."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


@contextlib.contextmanager
def numbered_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield, in all processes of the run, the folder `parent/name-N` that the first process reserves."""
    if not is_first():
        yield Path(from_first("folder", str(next_run(parent, name))))
        return
    with reserved(parent, name) as folder:
        share_with_others("folder", str(folder))
        yield folder


def newest_run(parent: Path) -> Path:
    runs = [path.parent for path in parent.glob("*/config.yaml") if not re.match(r"\.", path.parent.name)]
    if not runs:
        raise ValueError(f"--resume must be the folder of a run, got none under {parent}/: pass the folder.")
    return max(runs, key=lambda path: (path / "config.yaml").stat().st_mtime)
