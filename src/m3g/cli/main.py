"""Command dispatch, and the conversion of exceptions into error messages."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from m3g._interrupts import INTERRUPTED, raising_interrupts, started_by_command
from m3g._values import suggestion
from m3g.cli.launch import USER_ERROR, agent_store, end_with_parent, print_last, store_key
from m3g.cli.parser import Parser, data_root

# name: (module, summary). A module defines `arguments(parser, name)`, which adds the options, and `run(args, name)`,
# which may return an exit code. Optionally, `prepare(arguments)` separates the settings of a run, stored in
# `args.given`, from other arguments, and `names()` returns further options that are suggested for a misspelt one.
# `args.command_line` contains all arguments.
COMMANDS = {
    "train": ("train", "learn a representation from k views; start here"),
    "tune": ("tune", "search for settings on the validation split"),
    "evaluate": ("evaluate", "evaluate a trained run: probes, retrieval, matching, plots"),
    "audit": ("audit", "list training entries that probably do not match their row"),
    "embed": ("embed", "write the embeddings of a trained run to a file"),
    "report": ("report", "write an HTML report of runs, with an interactive map"),
    "compare": ("report", "compare the results of several runs"),
    "search": ("search", "find the nearest objects to a query given in any of the views"),
    "match": ("match", "match the rows of k files in unknown order"),
    "losses": ("listing", "list the losses that --loss accepts"),
    "data": ("listing", "list the data sets that --data accepts"),
    "encoders": ("listing", "list the encoders that --encoder and --view.NAME.encoder accept"),
    "prepare": ("prepare", "convert sleep recordings to windows for --data signals, or fonts to images"),
    "demo": ("demo", "compare M3G, pairwise InfoNCE, linear CCA and raw features on the built-in digits"),
    "flow": ("flow", "animate gradient descent on a loss, with the current best polymatching"),
    "bench": ("bench", "measure time and memory on this machine"),
    "reproduce": ("reproduce", "repeat an experiment of the documentation"),
    "export": ("export", "write a trained network as one ONNX or torch.export file per view"),
    "push": ("push", "upload a trained run to the Hugging Face hub"),
}

OVERVIEW = """Learn one representation from k views of the same objects.

  m3g train                                    on the built-in six-view digits
  m3g train --views a.npy b.npy c.npy          on your own files: row i of each is the same object
  m3g train --views a.npy b.npy --labels y.npy with labels, used only for evaluation
  m3g evaluate runs/m3g-1                      evaluate a finished run again
  m3g COMMAND --help                           all options of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    The exit code is 2 after an error that is reported in one line (with --debug, after the traceback), and 130 after an
    interrupt. Exceptions that indicate a bug are raised.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    end_with_parent()
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt as error:
        if os.environ.get("RANK", "0") != "0":
            return INTERRUPTED  # the first process reports it for all
        return _fail(f"interrupted; {error}" if str(error) else "interrupted", debug, code=INTERRUPTED)
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ImportError as error:
        if error.name and error.name.split(".")[0] == "m3g":
            raise
        advice = "" if "pip install" in str(error) else "; commands require the train extra: pip install 'm3g[train]'"
        return _fail(f"{error}{advice}", debug)
    except (ValueError, OSError, MemoryError, RecursionError) as error:
        return _fail(_one_line(error), debug)
    except RuntimeError as error:
        if "gloo" not in str(error):
            raise
        return _fail(f"the connection to another process was lost ({_one_line(error)}).", debug)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(OVERVIEW)
        width = max(map(len, COMMANDS))
        print("Commands:")
        for name, (_, summary) in COMMANDS.items():
            print(f"  {name:{width}}  {summary}")
        print("\nAll commands accept --debug, which shows the traceback of an error.")
        return 0
    if arguments[0] == "--version":
        from importlib.metadata import version  # slow import

        print(f"m3g {version('m3g')}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        others = [*COMMANDS, "--help", "--version"]
        raise ValueError(f"the command must be one of {', '.join(COMMANDS)}, got {name!r}{suggestion(name, others)}")
    module, summary = COMMANDS[name]
    command = importlib.import_module(f"m3g.cli.{module}")
    given, others = command.prepare(arguments[1:]) if hasattr(command, "prepare") else (None, arguments[1:])
    parser = Parser(
        f"m3g {name}",
        usage=f"m3g {name} {getattr(command, 'USAGE', {}).get(name, '[options]')}",
        description=getattr(command, "DESCRIPTION", {}).get(name, summary),
    )
    command.arguments(parser, name)
    args = parser.parse(others, also=getattr(command, "names", list))
    args.given, args.command_line = given, arguments
    if name != "reproduce":  # its --run is an id, not a folder
        _open_runs(args)
    with raising_interrupts():
        return int(command.run(args, name) or 0)


def _open_runs(args: argparse.Namespace) -> None:
    """Open the runs of a command before importing the libraries that it requires."""
    from m3g.training.runs.folder import Run

    if getattr(args, "run", None) is not None:
        args.run = Run.find(args.run)
    if hasattr(args, "runs"):
        args.runs = [Run.find(run) for run in args.runs]
    for run in getattr(args, "runs", None) or filter(None, [getattr(args, "run", None)]):
        run.open()
        run.data_root = data_root(args)


def _fail(message: str, debug: bool, *, code: int = USER_ERROR) -> int:
    """Report an error in one line, once for all processes, and return the exit code."""
    if debug:
        traceback.print_exc()
    rank = os.environ.get("RANK", "0")
    if not (code == INTERRUPTED and started_by_command()) and not _first_to_fail():
        return code
    where = f"process {rank}: " if rank != "0" else ""
    print_last(f"m3g: error: {where}{_shown(message)}")
    return code


def _shown(message: str) -> str:
    """Escape control characters in untrusted names, which a terminal would otherwise interpret."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)


def _first_to_fail() -> bool:
    """Return whether this is the first process of the torchrun launch to fail, according to the shared store."""
    try:
        store = agent_store(5)
        return store is None or store.add(store_key("failed"), 1) == 1
    except RuntimeError:  # torchrun has exited; a duplicate report is better than none
        return True


def _one_line(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} does not exist: check the path."
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "DataLoader worker process" in lines[0]:
        lines = [lines[-1].removeprefix(f"{type(error).__name__}: ")]  # the other lines are the worker's traceback
    text = " ".join(" ".join(lines).split())
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
