"""One parser, one place where errors become messages."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import version
from types import ModuleType
from typing import Any

from m3g._checks import meant
from m3g.cli.launch import USER_ERROR, end_with_parent, run_in_processes

# name: (module, what the list of commands says); a module has `arguments(parser, name)` and `run(args, name)`, and may
# have `prepare(words)`, which gives the settings of a run among the words, for `args.settings`, and the other words,
# and `processes(args)`, in how many processes the command runs
COMMANDS = {
    "train": ("train", "learn a representation from k views; start here"),
    "evaluate": ("evaluate", "measure a trained run again: probes, retrieval, matching, pictures"),
    "audit": ("audit", "list the entries of a trained run's data that do not belong to their row"),
    "embed": ("embed", "write the embeddings of a trained run to a file"),
    "report": ("report", "write one HTML page about runs, with an interactive map"),
    "compare": ("report", "print the results of several runs beside each other"),
    "search": ("search", "find the objects nearest to a query in any of the views"),
    "match": ("match", "match the rows of k files whose rows are in no common order"),
    "losses": ("listing", "list the losses that --loss takes"),
    "data": ("listing", "list the data sets that --data takes"),
    "encoders": ("listing", "list the encoders that --encoder and --view.NAME.encoder take"),
    "prepare": ("prepare", "turn a folder of sleep recordings into windows that --data signals reads"),
    "demo": (
        "demo",
        "M3G beside pairwise InfoNCE and raw features on the data set that ships with the package",
    ),
    "flow": ("flow", "watch a loss move points until the best matching is the true one"),
    "bench": ("bench", "measure time and memory on this machine"),
    "reproduce": ("reproduce", "repeat an experiment of the documentation"),
    "export": ("export", "write a trained network as one ONNX or torch.export file per view"),
    "push": ("push", "upload a trained run to the Hugging Face hub"),
}

OVERVIEW = """Learn one representation from k views of the same objects.

  m3g train                                    on the six-view digits that ship with the package
  m3g train --views a.npy b.npy c.npy          on your own files: row i of each is the same object
  m3g train --views a.npy b.npy --labels y.npy with labels, which only the evaluation uses
  m3g evaluate runs/m3g-1                      measure a finished run again
  m3g COMMAND --help                           every option of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns 0, or 2 after a one-line error message (with --debug also the traceback)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    end_with_parent()
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt as error:
        return _fail(f"interrupted; {error}" if str(error) else "interrupted", debug, code=130)
    except BrokenPipeError:
        # the reader of our output, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ImportError as error:
        if error.name and error.name.split(".")[0] == "m3g":
            raise
        named = "" if "pip install" in str(error) else "; the commands need the extra: pip install 'm3g[train]'"
        return _fail(f"{error}{named}", debug)
    except (ValueError, OSError, argparse.ArgumentError, MemoryError, RecursionError) as error:
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
        print("\nAll commands take --debug, which shows the traceback of an error.")
        return 0
    if arguments[0] == "--version":
        print(f"m3g {version('m3g')}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise ValueError(f"the command must be one of {', '.join(COMMANDS)}, got {name!r}{meant(name, COMMANDS)}")
    module, summary = COMMANDS[name]
    command: Any = importlib.import_module(f"m3g.cli.{module}")
    # settings come first: what is wrong with them can be told before there is a parser, which takes a while to build
    prepare = getattr(command, "prepare", lambda words: (None, words))
    settings, words = prepare(arguments[1:])
    args = _parse(_parser(name, command, summary), words, name)
    args.settings = settings
    if name != "reproduce":  # whose --run is the id of one that may not have begun
        _open_runs(getattr(args, "runs", None) or [getattr(args, "run", None)])
    count = command.processes(args) if hasattr(command, "processes") else 1
    return run_in_processes(count, arguments) if count > 1 else int(command.run(args, name) or 0)


def _parser(name: str, command: ModuleType, summary: str) -> Any:
    from jsonargparse import ArgumentParser, DefaultHelpFormatter

    class Formatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
        """Keep the line breaks of a description, where examples stand."""

    parser = ArgumentParser(
        prog=f"m3g {name}",
        usage=f"m3g {name} {getattr(command, 'USAGE', {}).get(name, '[options]')}",
        description=getattr(command, "DESCRIPTION", {}).get(name, summary),
        exit_on_error=False,
        print_config=None,  # m3g train has one of its own, which knows how the settings are written
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    command.arguments(parser, name)
    return parser


def _parse(parser: Any, words: list[str], name: str) -> Any:
    """The arguments; an option that there is not is told with the one that it resembles."""
    try:
        return parser.parse_args(words)
    except argparse.ArgumentError as error:
        unknown = re.search(r"[Uu]nrecognized arguments: ([^\s=]+)", str(error))
        if unknown is None:
            raise
        raise ValueError(
            f"the options of m3g {name} must be those that m3g {name} --help lists, got {unknown[1]}"
            f"{meant(unknown[1], parser._option_string_actions)}"
        ) from error


def _open_runs(runs: Sequence[str | None]) -> None:
    """Refuse what is no run, before the libraries that the command needs are loaded."""
    from m3g.training.runs.folder import Run

    for run in runs:
        if run is not None:
            Run(run).open()


def _fail(message: str, debug: bool, *, code: int = USER_ERROR) -> int:
    if debug:
        traceback.print_exc()
    rank = os.environ.get("RANK", "0")
    if not _first_to_fail():
        return code
    where = f"process {rank}: " if rank != "0" else ""
    print(f"m3g: error: {where}{_shown(message)}", file=sys.stderr, flush=True)
    return code


def _shown(message: str) -> str:
    """The message with control characters spelled out: a terminal would obey those in a stranger's names."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in message)


def _first_to_fail() -> bool:
    """Whether no other process under the same torchrun has failed before, according to the store it keeps for all."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=5))
        return store.add(f"m3g/failed/{attempt}", 1) == 1
    except RuntimeError:  # torchrun itself is gone: better told twice than never
        return True


def _one_line(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename} does not exist: check the path."
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "DataLoader worker process" in lines[0]:
        lines = [lines[-1].removeprefix(f"{type(error).__name__}: ")]  # the others are the worker's traceback
    text = " ".join(" ".join(lines).split())
    if isinstance(error, argparse.ArgumentError):
        return _in_words(text)
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"


def _in_words(text: str) -> str:
    """What the parser says about a value of another type, without the names of Python's types."""
    key = re.match('Parser key "(.+?)": (Expected|Does not validate)', text)
    value = re.search("(?:Got|Given) value: (.*)$", text)
    if key is None or value is None:
        return text
    kinds = {"int": "a whole number", "float": "a number", "str": "a word", "bool": "true or false", "NoneType": "null"}
    named = dict.fromkeys(re.findall(r"Expected a <class '(\w+)'>", text))
    if not named or not set(named) <= set(kinds):
        return text
    return f"{key[1]} must be {' or '.join(kinds[name] for name in named)}, got {value[1]}."
