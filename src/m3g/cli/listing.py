"""`m3g losses`, `m3g data` and `m3g encoders`: lists of names with their options."""

from __future__ import annotations

import inspect
import re
from argparse import Namespace
from collections.abc import Callable, Sequence

from m3g._catalogue import DATA, ENCODERS, LOSSES, find
from m3g.cli.output import print_table
from m3g.cli.parser import Parser

DESCRIPTION = {
    "losses": "List the losses that m3g train --loss accepts, or the options of one of them.",
    "data": "List the data sets that m3g train --data accepts, or the options of one of them.",
    "encoders": "List the encoders that m3g train --encoder and --view.NAME.encoder accept, or the options of one.",
}
# Meanings of options that many losses share, used if the docstrings describe none.
SHARED = {
    "solver": "auto, factored, dense, sampled, sinkhorn or linear-program, or a mapping with the settings of one.",
    "tol": "error of the marginals at which the solver stops.",
    "temperature": "divisor of the similarities.",
    "learn_temperature": "train the temperature with the network.",
}
USAGE = {"losses": "[NAME]", "data": "[NAME]", "encoders": "[NAME]"}


def arguments(parser: Parser, name: str) -> None:
    parser.add_argument("name", type=str, nargs="?", help="show the options of the entry with this name")


def run(args: Namespace, name: str) -> None:
    {"losses": _losses, "data": _data, "encoders": _encoders}[name](args.name)


def _losses(name: str | None) -> None:
    if name is None:
        rows = [(loss, entry.summary, entry.cost) for loss, entry in LOSSES.items()]
        print_table(["loss", "what it does", "complexity"], rows)
        print("\nm3g losses NAME shows the options of a loss; m3g train --loss NAME uses it.")
    else:
        entry = find("the loss", name, LOSSES)
        print(f"{name}: {entry.summary}. Complexity: {entry.cost}.\n")
        _print_options("loss", name, entry.load())


def _data(name: str | None) -> None:
    if name is None:
        print_table(["data", "what it is"], [(data, entry.headline()) for data, entry in DATA.items()])
        print("\nm3g data NAME shows the options of a data set; m3g train --data NAME uses it.")
    else:
        _print_options("data", name, find("the data set", name, DATA).load())


def _encoders(name: str | None) -> None:
    if name is not None:
        kind = find("the encoder", name, ENCODERS).load()
    from m3g.nets import registry

    if name is None:
        print_table(["encoder", "input and network", "options"], registry.describe())
        print("\nm3g encoders NAME shows the options of an encoder; m3g train --encoder NAME uses it for every view,")
        print("and --view.photo.encoder NAME --view.photo.OPTION VALUE for the view photo.")
    else:
        _print_options("encoder", name, kind, only=registry.options(name))
        print(f"\nFor one view: --view.NAME.encoder {name} --view.NAME.OPTION VALUE.")


def _print_options(what: str, name: str, kind: Callable[..., object], *, only: Sequence[str] | None = None) -> None:
    print(_about(kind))
    print(f"\n--{what} {name} accepts --{what}_options.NAME VALUE, where NAME is one of:")
    meanings = _meanings(kind)
    parameters = [p for p in inspect.signature(kind).parameters.values() if only is None or p.name in only]
    rows = [
        (p.name, "required" if p.default is p.empty else str(p.default), meanings.get(p.name, ""))
        for p in parameters
        if p.kind is not p.VAR_KEYWORD
    ]
    print_table(["option", "default", "meaning"], rows)


def _about(kind: Callable[..., object]) -> str:
    """Return the docstring of a class without arguments, example and citations."""
    text = (inspect.getdoc(kind) or "").partition("\nExample:")[0]
    return re.sub(r"\s*:cite:`\w+`", "", re.sub(r"\nArgs:\n((    .*)?\n?)*", "\n", text)).strip()


def _meanings(kind: Callable[..., object]) -> dict[str, str]:
    """Return the description of each option, from the docstrings of the class, its module's functions or its bases."""
    from docstring_parser.google import parse

    meanings: dict[str, str] = {}
    for parent in kind.__mro__ if isinstance(kind, type) else [kind]:
        module = inspect.getmodule(parent)
        functions = [f for _, f in inspect.getmembers(module, inspect.isfunction) if inspect.getmodule(f) is module]
        for source in (parent, *functions) if parent.__module__.startswith("m3g.") else ():
            for parameter in parse(source.__doc__ or "").params:
                meaning = " ".join((parameter.description or "").split())
                for name in parameter.arg_name.split(","):
                    if not meaning.startswith(("as in ", "as for ")):  # a reference to another docstring
                        meanings.setdefault(name.strip(), meaning)
    return {**SHARED, **meanings}
